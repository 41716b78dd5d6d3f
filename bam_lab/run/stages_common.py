"""What the stages that use torch share: threads, random streams, specs from plain data."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, TypeAdapter

from bam_lab.record.files import intact
from bam_lab.run.context import StageContext
from bam_lab.spec.methods import MethodSpec
from bam_lab.spec.model import ModelSpec

if TYPE_CHECKING:
    from torch import Tensor

    from bam_lab.model.ensemble import Ensemble
    from bam_lab.model.transformer import Transformer

Model = TypeVar("Model", bound=BaseModel)
CHECKPOINT = "checkpoint"
TOKENS = "tokens"


def decode(raw: Any, model: type[Model]) -> Model:
    """Return plain data of a stage's spec as the spec it was."""
    return model.model_validate_json(json.dumps(raw))


def decode_method(raw: Any) -> MethodSpec:
    """Return a stage's method."""
    adapter: TypeAdapter[MethodSpec] = TypeAdapter(MethodSpec)
    return adapter.validate_json(json.dumps(raw))


def stream_seed(rng_seed: int, purpose: str) -> int:
    """Return the seed of one random stream of a stage: 63 bits of SHA-256.

    Phases of one replicate share `rng_seed`; with one stream for all, the mixture phase would read
    each domain in the order in which the seed model has just read it.
    """
    digest = hashlib.sha256(f"{purpose}:{rng_seed}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def experts_folders(inputs: dict[str, Path]) -> list[Path]:
    """Return the stages of the dense experts, in router-column order."""
    count = sum(role.startswith("expert") for role in inputs)
    return [inputs[f"expert{i}"] for i in range(count)]


def load_any(stage: Path) -> "Transformer | Ensemble":
    """Read whatever model a finished stage left.

    Raises:
        InputError: its folder is damaged.
    """
    from bam_lab.model import checkpoint

    with intact(stage):
        return checkpoint.load_any(stage / CHECKPOINT)


def load_model(stage: Path) -> "Transformer":
    """Read the dense model or mixture that a finished stage left.

    Raises:
        InputError: its folder is damaged.
    """
    from bam_lab.model import checkpoint

    with intact(stage):
        return checkpoint.load(stage / CHECKPOINT)


def save_model(
    context: StageContext,
    state: Mapping[str, "Tensor"],
    spec: ModelSpec,
    method: MethodSpec,
    num_experts: int,
) -> None:
    """Write `checkpoint/` of a stage, with the digest of the tokenizer that it was given."""
    from bam_lab.data.tokens.tokenizer import FILE
    from bam_lab.model import checkpoint
    from bam_lab.record.files import sha256

    digest = sha256(context.inputs["tokenizer"] / "tokenizer" / FILE)
    checkpoint.save(state, spec, method, num_experts, context.work / CHECKPOINT, digest)
