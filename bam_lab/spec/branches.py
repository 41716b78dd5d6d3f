"""How a branch is trained: in full, or through low-rank adapters that are merged at its end."""

from typing import Literal, NamedTuple

from bam_lab.spec.base import PositiveFloat, PositiveInt, Spec

Target = Literal["ffn", "attention"]


class LoRASpec(Spec):
    """Train W + (alpha / rank) B A with W frozen, B zero at first (arXiv:2106.09685 §4.1).

    Attributes:
        targets: the modules whose every matrix has an adapter; all else stays the seed model's.
    """

    rank: PositiveInt
    alpha: PositiveFloat
    targets: tuple[Target, ...]


class BranchSpec(Spec):
    """Say how an arm's branches are trained.

    Attributes:
        equal: what they share with full branches: `tokens`, or `flops` (model training FLOPs, so
            more tokens).
    """

    lora: LoRASpec
    equal: Literal["tokens", "flops"] = "tokens"


class Branch(NamedTuple):
    """Name one dense expert of an ablation; `how` is None where it is trained in full."""

    name: str
    how: BranchSpec | None

    @property
    def label(self) -> str:
        """What tells it from the other branches in tables: `code`, `code+lora-r8-a16-ffn`."""
        if self.how is None:
            return self.name
        lora = self.how.lora
        parts = [f"{self.name}+lora", f"r{lora.rank}", f"a{lora.alpha:g}", *lora.targets]
        if self.how.equal == "flops":
            parts.append("equal-flops")
        return "-".join(parts)
