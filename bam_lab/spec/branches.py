"""What a branch is: of which text, read how, and trained in full or through low-rank adapters."""

import re
from typing import Literal, NamedTuple

from bam_lab.spec.base import PositiveFloat, PositiveInt, Spec
from bam_lab.spec.data import DataSpec, times
from bam_lab.spec.parts import domain_of
from bam_lab.spec.recipe import RecipeSpec, data_of

BRANCH_DATA = ("general_share", "general_repeats", "order")
"""What of an arm's data concerns its branches."""

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
    """Name one dense expert of an ablation.

    Attributes:
        how: how it is trained; None in full.
        data: what it reads otherwise than the recipe says; without a mix, its own text is that.
    """

    name: str
    how: BranchSpec | None = None
    data: DataSpec = DataSpec()

    @property
    def label(self) -> str:
        """What tells it from other branches in tables.

        `code`, `code+lora-r8-a16-ffn`, `code with 20% general`, `code in similar order`.
        """
        return f"{self._trained}{self._read}"

    @property
    def _trained(self) -> str:
        if self.how is None:
            return self.name
        lora = self.how.lora
        parts = [f"{self.name}+lora", f"r{lora.rank}", f"a{lora.alpha:g}", *lora.targets]
        if self.how.equal == "flops":
            parts.append("equal-flops")
        return "-".join(parts)

    @property
    def _read(self) -> str:
        share, repeats, order = (getattr(self.data, name) for name in BRANCH_DATA)
        text = "" if share is None else f" with {100 * share:g}% general"
        if repeats is not None:
            text += f"{'' if text else ' with general text'} read {times(repeats)}"
        if order is not None:
            text += f" in {'random order' if order == 'random' else order.label}"
        return text


def own_data(recipe: RecipeSpec, general: str, name: str, data: DataSpec) -> DataSpec:
    """Return what of `data` makes a branch read otherwise than the recipe says.

    Of an arm's `data`, some may be as in the recipe or without effect on the branch `name`;
    `general` is the general domain of the corpus.
    """
    standard, asked = data_of(recipe), data_of(recipe, data)
    differing = {n for n in BRANCH_DATA if getattr(asked, n) != getattr(standard, n)}
    if domain_of(name) == general:
        differing -= {"general_share"}
    elif not asked.general_share:
        differing -= {"general_repeats"}
    return DataSpec(**{n: getattr(asked, n) for n in BRANCH_DATA if n in differing})


def home_of(label: str) -> str:
    """Return the domain of a branch from its label."""
    return domain_of(re.split(r"\+| ", label, maxsplit=1)[0])
