"""Costs of an arm by arithmetic (`cost/`), from the resolved specs in the evidence."""

from functools import cache

from pydantic import TypeAdapter

from bam_lab.cost import flops, kv
from bam_lab.report.evidence import Evidence
from bam_lab.spec.methods import MethodSpec
from bam_lab.spec.model import ModelSpec


@cache
def _adapter() -> TypeAdapter[MethodSpec]:
    return TypeAdapter(MethodSpec)


def method_of(evidence: Evidence, arm: str) -> MethodSpec:
    """Return an arm's method."""
    return _adapter().validate_python(evidence.arm(arm).method, strict=False)


def model_of(evidence: Evidence) -> ModelSpec:
    """Return the dense model's shape."""
    return ModelSpec.model_validate(evidence.model, strict=False)


def num_experts_of(evidence: Evidence, arm: str) -> int:
    """Return how many experts an arm's routers choose from."""
    return len(evidence.arm(arm).experts)


def flops_of(evidence: Evidence, arm: str) -> int:
    """Return model training FLOPs of one token."""
    model, experts = model_of(evidence), num_experts_of(evidence, arm)
    method = method_of(evidence, arm)
    return flops.per_token(model, method, experts, model.max_seq_len).model_training


def kv_bytes_of(evidence: Evidence, arm: str) -> int:
    """Return the bytes of one cached token's keys and values in bf16."""
    return kv.bytes_per_token(
        model_of(evidence), method_of(evidence, arm), num_experts_of(evidence, arm)
    )
