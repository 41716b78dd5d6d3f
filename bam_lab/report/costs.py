"""Costs of an arm by arithmetic (`cost/`), from the resolved specs in the evidence."""

from functools import cache

from pydantic import TypeAdapter

from bam_lab.cost import flops, kv
from bam_lab.cost.decode import decode
from bam_lab.errors import SpecError
from bam_lab.report.evidence import Evidence
from bam_lab.spec.measures import MeasureName
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


def cost_of(evidence: Evidence, arm: str, measure: MeasureName) -> float:
    """Return a measure that arithmetic gives (`spec/measures.py`, source `costs`).

    Raises:
        SpecError: the arm has no such cost: one that cannot generate has none of decoding, and
            older results have no bytes.
    """
    budget = evidence.arm(arm).budget
    match measure:
        case "params_total":
            return float(budget["params"]["total"])
        case "params_active":
            return float(budget["params"]["active"])
        case "training_flops":
            return float(budget["training_flops"])
        case "bytes_communicated":
            if "bytes_communicated" not in budget:
                raise SpecError("not counted when this was run")
            return float(budget["bytes_communicated"])
        case "training_flops_per_token":
            return flops_of(evidence, arm)
        case "kv_bytes":
            return kv_bytes_of(evidence, arm)
        case "inference_flops":
            model, experts = model_of(evidence), num_experts_of(evidence, arm)
            return decode(model, method_of(evidence, arm), experts, model.max_seq_len).mean_flops
        case "activated_tokens":
            return activated_tokens(evidence, arm)
        case _:
            raise AssertionError(f"{measure} is not a matter of arithmetic")


def activated_tokens(evidence: Evidence, arm: str) -> float:
    """Return activated parameters times tokens, of the arm's branches and of its mixture phase.

    A branch that several replicates train counts once, by the mean over them.
    """
    budget = evidence.arm(arm).budget
    parts = budget.get("parts", [budget])
    own = float(sum(part["params"]["active"] * part["tokens"] for part in parts))
    names = set(evidence.arm(arm).branches or evidence.arm(arm).experts)
    spent: dict[str, list[float]] = {}
    for stage in evidence.stages:
        if stage.name == "expert" and stage.domain in names and stage.ledger:
            active = stage.ledger["params_active"] * stage.ledger["tokens"]
            spent.setdefault(stage.domain or "", []).append(active)
    return own + sum(sum(found) / len(found) for found in spent.values())
