"""What of the corpus a phase reads, and in which order: the data axes of an ablation."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from bam_lab.spec.base import Name, NonNegativeInt, PositiveFloat, PositiveInt, Share, Spec


class Similar(Spec):
    """Chain the documents of each domain by similarity, then cut the chain into sequences.

    arXiv:2405.03133 App. C; arXiv:2310.10638 §2.

    Attributes:
        embedder: `tfidf_svd` (no weights, deterministic), `minilm` (a packaged sentence encoder) or
            the folder of a Hugging Face encoder.
        dimensions: of `tfidf_svd`; the encoders have their own.
        neighbours: nearest documents that a chain may go on to (Lory states none; ours).
        traversal: `min_degree` restarts at the unvisited document with the fewest edges
            (arXiv:2310.10638 Algorithm 1), `simple` at the next one (arXiv:2405.03133 App. C).
        index: `exact` by matrix products, or `faiss` (for more than 100,000 documents).
        rng_seed: of the decomposition and of the restarts.
    """

    by: Literal["similar"] = "similar"
    embedder: str = "tfidf_svd"
    dimensions: PositiveInt = 256
    neighbours: PositiveInt = 10
    traversal: Literal["min_degree", "simple"] = "min_degree"
    index: Literal["exact", "faiss"] = "exact"
    rng_seed: NonNegativeInt = 0


def _named(value: Any) -> Any:
    return {"by": "similar"} if value == "similar" else value


Order = Annotated[Literal["random"] | Similar, BeforeValidator(_named)]
"""`random`, `similar` (all defaults) or a mapping of `Similar`'s fields."""


class DataSpec(Spec):
    """Change what an arm reads in its branch and mixture phases; what is left out is the recipe's.

    Attributes:
        general_share: of the general domain in each branch's mix.
        general_repeats: each phase reads just so much general text that it repeats it this often;
            None reads all that the domain has.
        mix: weights over domains in the mixture phase; scaled to sum to 1.
        order: which documents share a sequence.
    """

    general_share: Share | None = None
    general_repeats: PositiveInt | None = None
    mix: dict[Name, PositiveFloat] | None = Field(default=None, min_length=1)
    order: Order | None = None
