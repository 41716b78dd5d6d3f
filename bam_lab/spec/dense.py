"""Methods without routers: dense models, their average, and Branch-Train-Merge's ensemble."""

from typing import Literal

from bam_lab.spec.base import Name, PositiveFloat, PositiveInt, Spec


class SizeOf(Spec):
    """Take the size of another arm: the nearest that a whole `ffn_dim` gives.

    Attributes:
        params: which of the arm's parameters count, those a token uses or all.
    """

    arm: Name
    params: Literal["active", "total"]


class DenseMethod(Spec):
    """Train a dense model on the mixture phase's data mix.

    Attributes:
        start: go on training the seed model, unchanged, or begin with random weights; the latter
            has no seed model and no branch, and trains by the seed model's learning rates.
        ffn_dim: another width than the seed model's, from scratch only.
        size_of: the same, said by naming the arm that is to be equalled.
    """

    method: Literal["dense"]
    start: Literal["seed_model", "scratch"] = "seed_model"
    ffn_dim: PositiveInt | None = None
    size_of: SizeOf | None = None


class AverageMethod(Spec):
    """Average whole dense experts into one dense model, which is not trained (arXiv:2203.05482).

    Attributes:
        experts: names of the dense models, as for mixtures.
        weights: name -> weight, divided by their sum; absent for a uniform mean.
    """

    method: Literal["average"]
    experts: tuple[str, ...] = ()
    weights: dict[str, PositiveFloat] | None = None


class BTMMethod(Spec):
    """Keep dense experts whole and mix their next-token distributions (arXiv:2208.03306).

    The mixing weights are a posterior over domains given the text so far (arXiv:2303.14177 §3): the
    cosine of its tf-idf vector with the mean vector of each expert's training text, softmax, the
    largest `top_k` renormalised. Nothing is trained.

    Attributes:
        experts: names of the dense models, as for mixtures.
        temperature: divides the cosines.
    """

    method: Literal["btm"]
    top_k: PositiveInt
    experts: tuple[str, ...] = ()
    temperature: PositiveFloat = 0.1
