"""Segments of another length than in training: no weight depends on it."""

from typing import Any

import torch

from bam_lab.errors import SpecError
from bam_lab.evaluate.likelihood import Model
from bam_lab.model.transformer import Transformer
from bam_lab.spec.methods import LoryMethod, SegmentMoEMethod


def segment_len_of(model: Model) -> int | None:
    """Return the segment length of a method that routes segments; None for all others."""
    method = model.method if isinstance(model, Transformer) else None
    return method.segment_len if isinstance(method, LoryMethod | SegmentMoEMethod) else None


def segment_facts(used: Model, trained: Model) -> dict[str, Any]:
    """Return the columns that say by which segments a model is evaluated, and was trained."""
    return {
        "segment_len": segment_len_of(used),
        "trained_segment_len": segment_len_of(trained),
    }


def at_segment_len(model: Model, segment_len: int) -> Transformer:
    """Return a model of the same weights, which it shares, that routes segments of another length.

    Raises:
        SpecError: the method routes no segments, or this length does not fit the model's sequence.
    """
    method = model.method if isinstance(model, Transformer) else None
    if not isinstance(model, Transformer) or not isinstance(method, LoryMethod | SegmentMoEMethod):
        raise SpecError(
            f"segment_len must be left out for a model that routes no segments, got {segment_len}."
        )
    if segment_len == method.segment_len:
        return model
    with torch.device("meta"):
        changed = method.model_copy(update={"segment_len": segment_len})
        other = Transformer(model.spec, changed, model.num_experts)
    other.load_state_dict(model.state_dict(), assign=True)
    if model.spec.positions != "learned":  # tables that no state holds
        other.rope_cos, other.rope_sin = model.rope_cos, model.rope_sin
    return other.train(model.training)
