"""The state from which an interrupted phase continues to the same bits.

Batches and learning rates are functions of the step, so model, optimizer, random state and what the
recorder remembers are all there is. Written beside, synced, renamed; read with `weights_only`.
"""

import os
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bam_lab.record.files import explained, intact, sync_folder

NAME = "resume.pt"

Decisions = dict[str, Tensor]
"""What routers decided about a fixed text, by router (`evaluate/churn.py`)."""


@dataclass(frozen=True)
class ResumeState:
    """Hold a phase after `step` steps.

    Attributes:
        seconds: wall time of the training loop so far.
        sums: what the recorder has added up since its last row.
        decisions: of the validation before; empty where there was none, or no router.
    """

    step: int
    model: dict[str, Tensor]
    optimizer: dict[str, Any]
    rng: Tensor
    seconds: float
    sums: dict[str, float]
    decisions: Decisions = field(default_factory=dict)


def save(state: ResumeState, folder: Path) -> None:
    """Replace the state in `folder` at once."""
    path, temporary = folder / NAME, folder / f".{NAME}.{os.getpid()}.tmp"
    with explained(path):
        try:
            with temporary.open("wb") as file:
                # Not asdict: it would copy every tensor.
                torch.save({name: getattr(state, name) for name in _FIELDS}, file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            sync_folder(folder)
        finally:
            temporary.unlink(missing_ok=True)


_FIELDS = tuple(ResumeState.__dataclass_fields__)


def load(folder: Path) -> ResumeState | None:
    """Return the state in `folder`, or None where there is none.

    Raises:
        InputError: it is damaged.
    """
    path = folder / NAME
    if not path.exists():
        return None
    with intact(path):
        try:
            return ResumeState(**torch.load(path, map_location="cpu", weights_only=True))
        except (EOFError, RuntimeError, pickle.UnpicklingError) as error:
            raise ValueError(f"not a whole archive: {type(error).__name__}") from error


def discard(folder: Path) -> None:
    """Remove the state: the phase is over and its weights are saved elsewhere."""
    (folder / NAME).unlink(missing_ok=True)
