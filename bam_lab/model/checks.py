"""What can be wrong with a checkpoint: each check names the file, what was expected, what to do."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from bam_lab.errors import CheckpointError
from bam_lab.spec.model import ModelSpec

Shape = tuple[int, ...]
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_SHOWN = 3


def check_state(file: str, state: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """Check that a file holds the tensors of a model: these names, shapes, types, finite numbers.

    Args:
        file: what is named in messages.
        state: the tensors read from it.
        wanted: the model's own; on the meta device they cost nothing.

    Raises:
        CheckpointError: naming up to three tensors of each kind of problem.
    """
    both = [name for name in wanted if name in state]
    problems = [
        ("lacks", "", [name for name in wanted if name not in state]),
        ("holds", " too, which the model has not", [name for name in state if name not in wanted]),
        (
            "must have other shapes:",
            "",
            [
                f"{name} {list(state[name].shape)} instead of {list(wanted[name].shape)}"
                for name in both
                if state[name].shape != wanted[name].shape
            ],
        ),
        (
            "must have other types:",
            "",
            [
                f"{name} {_type(state[name])}"
                for name in both
                if not _fits(state[name], wanted[name])
            ],
        ),
        (
            "must be finite, got NaN or infinity in",
            "; its training diverged, or it was damaged",
            [
                name
                for name in both
                if _fits(state[name], wanted[name]) and not _finite(state[name])
            ],
        ),
    ]
    told = [f"{how} {_shown(names)}{rest}" for how, rest, names in problems if names]
    if told:
        raise CheckpointError(
            f"{file} must hold the weights of the model that model.json beside it describes, but "
            f"it {'; it '.join(told)}. Save the model again, or give another checkpoint."
        )


def check_alike(
    names: Sequence[str], specs: Sequence[ModelSpec], tokenizers: Sequence[str | None]
) -> None:
    """Check that dense models can be mixed: one shape, and one tokenizer where it is known.

    Raises:
        CheckpointError: naming the two that differ, and in what.
    """
    for name, spec in zip(names[1:], specs[1:], strict=True):
        ours, theirs = specs[0].model_dump(), spec.model_dump()
        differing = [
            f"{key} {theirs[key]} and {ours[key]}" for key in ours if ours[key] != theirs[key]
        ]
        if differing:
            raise CheckpointError(
                f"{name} must have the shape of {names[0]}, with which it is mixed, got "
                f"{', '.join(differing)}. Mix models that branched from one seed model."
            )
    known = [(name, digest) for name, digest in zip(names, tokenizers, strict=True) if digest]
    for name, digest in known[1:]:
        if digest != known[0][1]:
            raise CheckpointError(
                f"{name} must have the tokenizer of {known[0][0]}, with which it is mixed, got "
                f"tokenizer.json of SHA-256 {digest[:12]} and {known[0][1][:12]}: equal tokens "
                "mean different text to them. Mix models that were trained with one tokenizer."
            )


def _shown(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _fits(tensor: Tensor, wanted: Tensor) -> bool:
    """Any usual floating type is cast to float32; numbers of tokens stay whole."""
    if wanted.is_floating_point():
        return tensor.dtype in _FLOATS
    return tensor.dtype == wanted.dtype


def _type(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _finite(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())
