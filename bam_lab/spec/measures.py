"""What claims and columns may be about: one table, measure -> unit, better direction, source.

A measure is a number of one arm, one replicate, and for some one domain. `perplexity` is kept and
compared as its logarithm, the mean negative log-likelihood. Those of source `evaluation` are there
where a spec's `evaluate:` asks for them (`spec/evaluation.py`); else they are not measured.
"""

from dataclasses import dataclass
from typing import Literal, get_args

Source = Literal["heldout", "costs", "training", "evaluation"]
Better = Literal["lower", "higher", "none"]


@dataclass(frozen=True)
class Measure:
    """Describe one measure.

    Attributes:
        title: what it is, in words for a table's caption.
        unit: of a value; empty for counts and shares.
        better: which direction is better.
        source: `heldout` (scores of evaluation), `costs` (arithmetic: exact, the same for every
            replicate), `training` (ledgers and metrics of the mixture phase), or `evaluation`.
        margin: smallest difference that counts, in the measure's own unit; None compares
            logarithms, and the margin is the spec's `delta`, relative.
        domains: whether there is a value for each domain, task, group of tasks, or length.
    """

    title: str
    unit: str
    better: Better
    source: Source
    margin: float | None = None
    domains: bool = False


MeasureName = Literal[
    "perplexity",
    "bits_per_byte",
    "params_total",
    "params_active",
    "training_flops",
    "training_flops_per_token",
    "inference_flops",
    "kv_bytes",
    "activated_tokens",
    "bytes_communicated",
    "load_max",
    "load_min",
    "experts_used",
    "attention_load_max",
    "router_entropy",
    "attention_entropy",
    "tokens_dropped",
    "loss_spikes",
    "grad_norm_median",
    "grad_norm_high",
    "router_churn",
    "attention_churn",
    "seconds_per_step",
    "tokens_per_device_second",
    "critical_path_seconds",
    "transfer_at_equal_loss",
    "completion_perplexity",
    "needle_accuracy",
    "latency",
    "task_accuracy",
    "accuracy_by_task",
    "rerouting_gain",
    "mutual_information",
    "prompt_mismatch",
    "position_gradient",
]

_SHARE = 0.02
"""A difference between two shares that counts: two percentage points."""

MEASURES: dict[MeasureName, Measure] = {
    "perplexity": Measure("test perplexity", "", "lower", "heldout", domains=True),
    "bits_per_byte": Measure("test bits per byte", "bits/byte", "lower", "heldout", domains=True),
    "params_total": Measure("parameters", "", "lower", "costs"),
    "params_active": Measure("parameters that one token uses", "", "lower", "costs"),
    "training_flops": Measure("model FLOPs of the mixture phase", "FLOPs", "lower", "costs"),
    "training_flops_per_token": Measure(
        "model training FLOPs of one token", "FLOPs", "lower", "costs"
    ),
    "inference_flops": Measure(
        "FLOPs of one decoded token, after a row of full length", "FLOPs", "lower", "costs"
    ),
    "kv_bytes": Measure("bytes of one cached token's keys and values", "bytes", "lower", "costs"),
    "activated_tokens": Measure(
        "activated parameters times tokens, of the arm's branches and its mixture phase",
        "",
        "none",
        "costs",
    ),
    "bytes_communicated": Measure(
        "bytes that 8 devices would send in the mixture phase", "bytes", "lower", "costs"
    ),
    "load_max": Measure(
        "largest share of one FFN expert, late in training", "", "lower", "training", _SHARE
    ),
    "load_min": Measure(
        "smallest share of one FFN expert, late in training", "", "higher", "training", _SHARE
    ),
    "experts_used": Measure(
        "share of FFN experts that some token or segment gives more than 2/N, late in training",
        "",
        "higher",
        "training",
        _SHARE,
    ),
    "attention_load_max": Measure(
        "largest share of one attention expert, late in training", "", "lower", "training", _SHARE
    ),
    "router_entropy": Measure(
        "entropy of the FFN routers' softmax, late in training", "nats", "none", "training", 0.05
    ),
    "attention_entropy": Measure(
        "entropy of the attention routers' softmax, late in training",
        "nats",
        "none",
        "training",
        0.05,
    ),
    "tokens_dropped": Measure(
        "share of choices that a capacity limit dropped, late in training",
        "",
        "lower",
        "training",
        _SHARE,
    ),
    "loss_spikes": Measure(
        "spikes of the training loss in 1,000 steps", "per 1,000 steps", "lower", "training", 1.0
    ),
    "grad_norm_median": Measure(
        "median gradient norm of the logged steps, before clipping", "", "none", "training"
    ),
    "grad_norm_high": Measure(
        "95th percentile, over the rows of the log, of the largest gradient norm of a row's steps",
        "",
        "lower",
        "training",
    ),
    "router_churn": Measure(
        "how much FFN routing of the same held-out tokens changes between two validations",
        "",
        "lower",
        "training",
        _SHARE,
    ),
    "attention_churn": Measure(
        "how much attention routing of the same held-out tokens changes between two validations",
        "",
        "lower",
        "training",
        _SHARE,
    ),
    "seconds_per_step": Measure(
        "wall seconds of one step of the mixture phase", "s", "lower", "training"
    ),
    "tokens_per_device_second": Measure(
        "training tokens of branches and mixture phase for one second of one device",
        "tokens/s",
        "higher",
        "training",
    ),
    "critical_path_seconds": Measure(
        "seconds from the seed model to the trained arm, branches side by side",
        "s",
        "lower",
        "training",
    ),
    "transfer_at_equal_loss": Measure(
        "validation loss on domains that no stage reads, at equal loss in the others",
        "nats",
        "lower",
        "training",
        0.005,
    ),
    "completion_perplexity": Measure(
        "perplexity of completions, routed by the prompt",
        "",
        "lower",
        "evaluation",
        domains=True,
    ),
    "needle_accuracy": Measure(
        "needles found in prompts", "", "higher", "evaluation", _SHARE, domains=True
    ),
    "latency": Measure("seconds of a completion, by rounds", "s", "lower", "evaluation"),
    "task_accuracy": Measure(
        "accuracy on tasks, by group of tasks", "", "higher", "evaluation", 0.01, domains=True
    ),
    "accuracy_by_task": Measure(
        "accuracy, task by task", "", "higher", "evaluation", 0.01, domains=True
    ),
    "rerouting_gain": Measure(
        "accuracy that routing again at every segment adds, by group of tasks",
        "",
        "higher",
        "evaluation",
        0.01,
        domains=True,
    ),
    "mutual_information": Measure(
        "mutual information of domain and chosen expert", "nats", "higher", "evaluation", 0.02
    ),
    "prompt_mismatch": Measure(
        "loss of prompt-only routing over re-routing every segment",
        "nats",
        "lower",
        "evaluation",
        0.005,
        domains=True,
    ),
    "position_gradient": Measure(
        "gradient norm of the first segment's absolute position embeddings",
        "",
        "none",
        "evaluation",
    ),
}

BY_LENGTH: tuple[MeasureName, ...] = (
    "completion_perplexity",
    "prompt_mismatch",
    "needle_accuracy",
)
"""Measures whose places are lengths of prompts."""

assert set(MEASURES) == set(get_args(MeasureName))


def unmeasured(name: MeasureName) -> str:
    """Return why no arm may have a number of a measure; empty for those that are always there."""
    if MEASURES[name].source != "evaluation":
        return ""
    return f"{name} ({MEASURES[name].title}) is not asked for: add it to `evaluate:` and run again"
