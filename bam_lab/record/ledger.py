"""What a stage cost: the numbers that a comparison must state."""

from dataclasses import asdict, dataclass, field
from pathlib import Path

from bam_lab.record.files import read_json, write_json

NAME = "ledger.json"


@dataclass(frozen=True)
class Ledger:
    """Count one training stage.

    Attributes:
        training_flops: model FLOPs (`cost/flops.py`, what matching uses).
        executed_flops: what ran, masked attention and recompute included.
        first_step: steps of the phase before this stage's; all but the reading leaves them out.
        device_seconds: wall time of the training loop times devices (cores, on a CPU).
        epochs: how often each domain's training text, or the pool drawn from it, was read, by the
            phase up to here; so are shares and sources.
        shares: each domain's share of the tokens.
        sources: source -> {tokens, epochs, repeated_tokens} (`data/tokens/sources.py`).
        bytes_communicated: what 8 devices would send (`cost/communication.py`); 0 in older ones.
    """

    tokens: int
    steps: int
    training_flops: float
    executed_flops: float
    params_total: int
    params_active: int
    device_seconds: float
    wall_seconds: float
    epochs: dict[str, float] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)
    sources: dict[str, dict[str, float]] = field(default_factory=dict)
    bytes_communicated: int = 0
    first_step: int = 0


def write(folder: Path, ledger: Ledger) -> None:
    """Write the ledger into a stage's folder."""
    write_json(folder / NAME, asdict(ledger))


def read(folder: Path) -> Ledger:
    """Read the ledger of a stage's folder."""
    return Ledger(**read_json(folder / NAME))
