"""What is measured of an ablation's trained models beside held-out loss: the block `evaluate:`.

    evaluate:
      suites: [default]
      experts: true
      routing: true
      latency: {prompt: 256, new: 16}
      probes:
        - {probe: completion, prompts: [0.125, 0.5], completion: 0.25}

Lengths of probes are shares of the model's context, so that a file suits every scale; latency is of
tokens, as papers state it. Each becomes stages of its own (`run/evaluations.py`): what is added
later trains nothing anew.
"""

from typing import Annotated, Literal

from pydantic import Field

from bam_lab.spec.base import NonNegativeInt, PositiveInt, Share, Spec

Part = Annotated[float, Field(gt=0, lt=1)]
"""A share of the model's context."""
Parts = Annotated[tuple[Part, ...], Field(min_length=1)]
NeedleTask = Literal[
    "needle",
    "needles",
    "needles-only",
    "ruler-single",
    "ruler-single-text",
    "ruler-multi-key",
    "ruler-needles-only",
    "ruler-uuids",
]


class ProbeSpec(Spec):
    """Hold what all probes share."""

    @property
    def by_segments(self) -> bool:
        """Return whether the arms' segment lengths say what is measured."""
        return False


class CompletionProbe(ProbeSpec):
    """Score true continuations after prompts of several lengths, under both inference rules.

    Attributes:
        prompts: lengths of the prompts.
        completion: length of what follows; always the same tokens.
        across: whether models that route segments are also evaluated by the segment lengths of
            the ablation's other arms: the grid of trained by evaluated lengths.
        rows: completions of each domain, at most.
    """

    probe: Literal["completion"]
    prompts: Parts
    completion: Part
    across: bool = False
    rows: PositiveInt = 64

    @property
    def by_segments(self) -> bool:
        """Return whether the arms' segment lengths say what is measured."""
        return self.across


class DistanceProbe(ProbeSpec):
    """Score long true continuations by their distance from the prompt, and how routing drifts.

    Attributes:
        prompt: length of the prompt; the continuation takes the rest of the context.
        bin_len: tokens of one bin of the continuation.
        switched: whether every domain's continuations also follow prompts of every other domain.
        own: whether routing is also followed through what the model itself goes on with.
        rows: continuations of each domain, at most.
    """

    probe: Literal["distance"]
    prompt: Part
    bin_len: PositiveInt
    switched: bool = False
    own: bool = False
    rows: PositiveInt = 64


class NeedleProbe(ProbeSpec):
    """Hide facts in held-out text and ask for one (RULER's forms, arXiv:2404.06654 §3).

    Attributes:
        tasks: which forms (`evaluate/probes/needles.py`).
        lengths: of the prompts.
        depths: where the fact stands: 0 is the start, 1 right before the question.
        count: prompts of each length and depth.
    """

    probe: Literal["needles"]
    tasks: Annotated[tuple[NeedleTask, ...], Field(min_length=1)]
    lengths: Parts
    depths: Annotated[tuple[Share, ...], Field(min_length=1)]
    count: PositiveInt = 25
    rng_seed: NonNegativeInt = 0


class FirstSegmentProbe(ProbeSpec):
    """Score the first segment of every window apart from all later ones.

    Attributes:
        segment_len: cuts the windows of all arms; None takes that of the arms that route segments.
    """

    probe: Literal["first_segment"]
    segment_len: PositiveInt | None = None

    @property
    def by_segments(self) -> bool:
        """Return whether the arms' segment lengths say what is measured."""
        return self.segment_len is None


class PositionsProbe(ProbeSpec):
    """Measure what the loss teaches learned positions, of the first segment and of later ones.

    Attributes:
        segment_len: as of `FirstSegmentProbe`.
        rows: windows of each domain, at most.
    """

    probe: Literal["positions"]
    segment_len: PositiveInt | None = None
    rows: PositiveInt = 64

    @property
    def by_segments(self) -> bool:
        """Return whether the arms' segment lengths say what is measured."""
        return self.segment_len is None


class SlidingProbe(ProbeSpec):
    """Score every held-out token after at least `context` tokens of its document, where it has any.

    Attributes:
        context: length of what is read again in front of each window.
    """

    probe: Literal["sliding"]
    context: Part


Probe = Annotated[
    CompletionProbe
    | DistanceProbe
    | NeedleProbe
    | FirstSegmentProbe
    | PositionsProbe
    | SlidingProbe,
    Field(discriminator="probe"),
]


class LatencySpec(Spec):
    """Time completions of every arm's shape, in turn; weights are random, shapes are not.

    BAM's table has 16 tokens after 256, a mean of 10 (arXiv:2408.08274, rebuttal).

    Attributes:
        prompt: tokens of the prompts.
        new: tokens decoded after them.
        batches: completions side by side.
        together: whether parallel blocks are timed with attention and FFN at the same time, too.
    """

    prompt: PositiveInt = 256
    new: Annotated[int, Field(ge=2)] = 16
    batches: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = (1,)
    together: bool = False


class EvaluationSpec(Spec):
    """Say what is measured of trained models beside held-out loss.

    Attributes:
        suites: names of `eval/suites`, or paths of suites; the first is the one that claims and
            columns are about where none is named.
        rerouted: whether models that route segments answer the suites a second time, routed again
            at every segment instead of once by the prompt (arXiv:2405.03133, Table 6).
        experts: whether the seed model and the dense experts answer the suites too.
        routing: whether what every router does on held-out text is measured.
        probes: of every arm.
        latency: None measures none.
    """

    suites: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    rerouted: bool = False
    experts: bool = False
    routing: bool = False
    probes: tuple[Probe, ...] = ()
    latency: LatencySpec | None = None
