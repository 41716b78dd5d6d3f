"""A model on disk: weights as safetensors, shape and method as JSON; nothing is unpickled.

What is read is checked, so that every problem is told with the file, what was expected of it and
what to do (`checks.py`).
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from bam_lab.errors import CheckpointError, SpecError
from bam_lab.model.checks import check_state
from bam_lab.model.ensemble import Ensemble
from bam_lab.model.transformer import Transformer
from bam_lab.spec.experts import num_experts_of, num_sources
from bam_lab.spec.methods import BTMMethod, MethodSpec
from bam_lab.spec.model import ModelSpec

WEIGHTS, SHAPE = "model.safetensors", "model.json"
_PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pkl")
_ARCHIVE = b"PK\x03\x04"  # of torch.save


class Held(NamedTuple):
    """Hold what a checkpoint says and has.

    Attributes:
        tokenizer: SHA-256 of the tokenizer.json that its tokens are of; None where not recorded.
    """

    spec: ModelSpec
    method: MethodSpec
    num_experts: int
    state: dict[str, Tensor]
    tokenizer: str | None


def save(
    state: Mapping[str, Tensor],
    spec: ModelSpec,
    method: MethodSpec,
    num_experts: int,
    folder: Path,
    tokenizer: str | None = None,
) -> None:
    """Write the state of a `Transformer` or `Ensemble` into `folder`, which is made if missing."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: t.detach().contiguous() for name, t in state.items()}, folder / WEIGHTS)
    shape = {
        "model": spec.model_dump(mode="json", by_alias=True),
        "method": method.model_dump(mode="json", by_alias=True),
        "num_experts": num_experts,
        "weights": _sha256(folder / WEIGHTS),
    } | ({} if tokenizer is None else {"tokenizer": tokenizer})
    (folder / SHAPE).write_text(json.dumps(shape, indent=1) + "\n", encoding="utf-8")


def load(folder: Path) -> Transformer:
    """Read the dense model or mixture that `save` wrote.

    Raises:
        CheckpointError: it cannot be used.
    """
    model = load_any(folder)
    assert isinstance(model, Transformer), f"{folder} holds an ensemble"
    return model


def load_any(folder: Path) -> Transformer | Ensemble:
    """Read whatever model `save` wrote.

    Raises:
        CheckpointError: it cannot be used.
    """
    held = read(folder)
    if isinstance(held.method, BTMMethod):
        ensemble = Ensemble(held.spec, held.method, held.num_experts)
        ensemble.load_state_dict(held.state)
        return ensemble
    return build(held.spec, held.method, held.num_experts, held.state)


def read(folder: Path) -> Held:
    """Read a checkpoint and check it.

    Raises:
        CheckpointError: a file is missing, damaged or no checkpoint, or the weights are not those
            of the model that is described.
    """
    if not folder.is_dir():
        found = "a file" if folder.exists() else "nothing there"
        raise CheckpointError(
            f"{folder} must be a folder that holds {SHAPE} and {WEIGHTS}, got {found}. "
            "Give the folder of a checkpoint."
        )
    try:
        spec, method, num_experts, tokenizer, digest = _described(folder / SHAPE)
        state = read_weights(folder / WEIGHTS)
    except OSError as error:
        raise CheckpointError(
            f"{folder} must be readable, got: {error.strerror or error}. Check its permissions and "
            "its disk."
        ) from error
    try:
        with torch.device("meta"):
            ensemble = isinstance(method, BTMMethod)
            model = (Ensemble if ensemble else Transformer)(spec, method, num_experts)  # type: ignore[arg-type]
    except SpecError as error:
        raise CheckpointError(
            f"{folder / SHAPE} must describe a model that can be built: {error}"
        ) from error
    check_state(str(folder / WEIGHTS), state, model.state_dict())
    if digest is not None and digest != (found := _sha256(folder / WEIGHTS)):
        raise CheckpointError(
            f"{folder / WEIGHTS} must have the SHA-256 that {SHAPE} beside it tells, "
            f"{str(digest)[:12]}, got {found[:12]}: it was damaged or exchanged. Copy the "
            f"checkpoint again, or take `weights` out of {SHAPE} if the change was yours."
        )
    return Held(spec, method, num_experts, state, tokenizer)


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _described(file: Path) -> tuple[ModelSpec, MethodSpec, int, str | None, str | None]:
    """Return what model.json says: shape, method, experts, digests of tokenizer and weights."""
    if not file.is_file():
        raise CheckpointError(
            f"{file} must say the model's shape and method, got no such file. Give a folder that "
            "BAM Lab wrote, or import the weights of another program first."
        )
    try:
        told: Any = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(
            f"{file} must be JSON, got something else ({error}). Copy the checkpoint again."
        ) from error
    try:
        spec = ModelSpec.model_validate_json(json.dumps(told["model"]))
        adapter: TypeAdapter[MethodSpec] = TypeAdapter(MethodSpec)
        method = adapter.validate_json(json.dumps(told["method"]))
        count, tokenizer = told["num_experts"], told.get("tokenizer")
        whole = isinstance(count, int) and count > 0
        if not whole or num_experts_of(method, num_sources(method, count)) != count:
            raise ValueError(f"num_experts {count} is not what {method.method} makes")
    except (ValidationError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{file} must hold model, method and num_experts as this version of BAM Lab knows "
            f"them, got {_told(error)}. Use the version that wrote it, or another checkpoint."
        ) from error
    return spec, method, count, tokenizer, told.get("weights")


def _told(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return f"{type(error).__name__}: {error}"
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'method'}: {first['msg']}"


def read_weights(file: Path) -> dict[str, Tensor]:
    """Read a safetensors file.

    Raises:
        CheckpointError: it is missing, damaged, or a pickle, which is never opened.
    """
    why = "a pickle, which may run any code when it is opened. Save the weights with safetensors"
    if not file.is_file():
        beside = sorted(file.parent.glob("*")) if file.parent.is_dir() else []
        pickles = [path.name for path in beside if path.suffix in _PICKLES]
        found = f"{pickles[0]}, {why}" if pickles else "no such file. Copy the checkpoint again"
        raise CheckpointError(f"{file} must hold the weights, got {found}.")
    with file.open("rb") as opened:
        head = opened.read(9)
    if file.suffix in _PICKLES or _is_pickle(head):
        raise CheckpointError(f"{file} must be a safetensors file, got {why}.")
    try:
        return load_file(file)
    except SafetensorError as error:
        raise CheckpointError(
            f"{file} must be a whole safetensors file, got {error}. Copy the checkpoint again."
        ) from error


def _is_pickle(head: bytes) -> bool:
    """Tell torch.save's archive and bare pickles from a header's length and its brace."""
    return head[:4] == _ARCHIVE or (
        head[:1] == b"\x80" and head[1:2] < b"\x06" and head[8:] != b"{"
    )


def build(
    spec: ModelSpec, method: MethodSpec, num_experts: int, state: Mapping[str, Tensor]
) -> Transformer:
    """Return a `Transformer` holding `state`, every tensor of it and no other."""
    model = Transformer(spec, method, num_experts)
    model.load_state_dict(
        {name: t.to(torch.float32) if t.is_floating_point() else t for name, t in state.items()}
    )
    return model
