"""What of the corpus a phase reads, and in which order: the data axes of an ablation."""

import math
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Discriminator, Tag, model_validator

from bam_lab.spec.base import (
    Name,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    Share,
    Spec,
)


def scaled(mix: dict[str, float]) -> dict[str, float]:
    """Return weights divided by their sum; those that sum to 1 already, bit by bit as they are."""
    total = sum(mix.values())
    if not 0 < total < math.inf:
        raise ValueError("the weights must have a finite sum above 0")
    if abs(total - 1) <= 1e-6:
        return mix
    return {name: weight / total for name, weight in mix.items()}


Mix = Annotated[dict[Name, NonNegativeFloat], AfterValidator(scaled)]
"""Weights over domains as a paper prints them, scaled to sum to 1."""


class Similar(Spec):
    """Chain the documents of each domain by similarity, then cut the chain into sequences.

    arXiv:2405.03133 App. C; arXiv:2310.10638 §2.

    Attributes:
        embedder: `tfidf_svd` (no weights, deterministic), `minilm` (a packaged sentence encoder) or
            the folder of a Hugging Face encoder, counted from where bam-lab is called.
        dimensions: of `tfidf_svd`; the encoders have their own.
        neighbours: nearest documents that a chain may go on to (Lory states none; ours).
        traversal: `min_degree` restarts at the unvisited document with the fewest edges
            (arXiv:2310.10638 Algorithm 1), `simple` at the next one (arXiv:2405.03133 App. C);
            `data/order/chain.py` says all of both.
        index: `exact` by matrix products, or `faiss` (for more than 100,000 documents in a domain).
        rng_seed: of the decomposition, and of faiss's cells.
    """

    by: Literal["similar"] = "similar"
    embedder: str = "tfidf_svd"
    dimensions: PositiveInt = 256
    neighbours: PositiveInt = 10
    traversal: Literal["min_degree", "simple"] = "min_degree"
    index: Literal["exact", "faiss"] = "exact"
    rng_seed: NonNegativeInt = 0

    @model_validator(mode="after")
    def _has_effect(self) -> Self:
        if self.embedder != "tfidf_svd" and self.dimensions != 256:
            raise ValueError("dimensions has no effect with an encoder. Remove it")
        if self.embedder != "tfidf_svd" and self.index == "exact" and self.rng_seed:
            raise ValueError("rng_seed has no effect with an encoder and exact. Remove it")
        return self

    @property
    def is_folder(self) -> bool:
        """Whether the embedder is a folder, and no name of ours."""
        return self.embedder not in ("tfidf_svd", "minilm")

    @property
    def label(self) -> str:
        """What tells it from other orders: `similar order`, `similar order (simple, minilm)`."""
        told = self.model_dump(exclude_defaults=True)
        words = ", ".join(v if isinstance(v, str) else f"{k} {v}" for k, v in told.items())
        return f"similar order ({words})" if words else "similar order"


def _named(value: Any) -> Any:
    if value == "similar":
        return {"by": "similar"}
    if value != "random" and not isinstance(value, dict | Similar):
        raise ValueError("random, similar or a mapping")
    return value


def _kind(value: Any) -> str:
    return "random" if value == "random" else "similar"


Order = Annotated[
    Annotated[Literal["random"], Tag("random")] | Annotated[Similar, Tag("similar")],
    Discriminator(_kind),
    BeforeValidator(_named),
]
"""`random`, `similar` (all defaults) or a mapping of `Similar`'s fields."""


CHAIN_OF_A_POOL = (
    "general_repeats must not stand with order: similar: the part of a chain that a phase would "
    "repeat is a cluster, not a sample. Remove one of the two"
)


class DataSpec(Spec):
    """Change what an arm reads in its branch and mixture phases; what is left out is the recipe's.

    The seed model always reads the recipe's mix, all of its text, in random order.

    Attributes:
        general_share: of the general domain in each branch's mix.
        general_repeats: each phase reads just so much general text that it repeats it this often;
            None reads all that the domain has.
        mix: weights over domains in the mixture phase; scaled to sum to 1.
        order: which documents share a sequence.
    """

    general_share: Share | None = None
    general_repeats: PositiveInt | None = None
    mix: Mix | None = None
    order: Order | None = None

    def words(self) -> str:
        """Return what is changed, for people: `general share 20%, mix code 50% law 50%`."""
        parts = []
        if self.general_share is not None:
            parts.append(f"general share {100 * self.general_share:g}%")
        if self.general_repeats is not None:
            parts.append(f"general text {times(self.general_repeats)}")
        if self.mix is not None:
            shares = (f"{name} {100 * weight:.4g}%" for name, weight in self.mix.items())
            parts.append(f"mix {' '.join(shares)}")
        if self.order is not None:
            parts.append("random order" if self.order == "random" else self.order.label)
        return ", ".join(parts)


def times(count: int) -> str:
    """Return `once`, `2 times` ..."""
    return "once" if count == 1 else f"{count} times"
