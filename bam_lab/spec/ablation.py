"""One question: its arms, its match, its report, its claims."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from bam_lab.spec.base import Name, PositiveFloat, SchemaVersion, Spec
from bam_lab.spec.claims import Claim
from bam_lab.spec.evaluation import EvaluationSpec

MatchMode = Literal[
    "tokens",
    "flops",
    "device-time",
    "params-total",
    "params-active",
    "inference-flops",
    "decode-throughput",
]
Knob = Literal["num_experts", "top_k", "ffn_dim", "batch"]
Knobs = Annotated[
    tuple[Knob, ...], BeforeValidator(lambda raw: (raw,) if isinstance(raw, str) else raw)
]
"""One knob, or a list of them."""


class Source(Spec):
    """Say where the question was printed; `table` is empty where no table of the paper asks it."""

    paper: str
    table: str = ""
    also: str = ""

    @property
    def place(self) -> str:
        """Return paper and table."""
        return f"{self.paper}, Table {self.table}" if self.table else self.paper


class Match(Spec):
    """Say what is equal between arms (`cost/match/`).

    Attributes:
        on: `tokens` (the same batches in the same order); `flops` (model training FLOPs);
            `device-time` (seconds a step, measured by a `calibrate` stage, times steps); or, with
            equal tokens, `params-total`, `params-active`, `inference-flops` (model FLOPs of a
            token's forward pass) or `decode-throughput` (tokens a second, measured likewise).
        phase: what `flops` and `device-time` count: the mixture phase alone, or all phases of the
            arm's lineage.
        across: whether `flops` is compared with the baseline of the ablation's first setting, not
            with that of the arm's own.
        by: arm -> what of it is solved, tried in every combination: `num_experts`, `top_k`,
            `ffn_dim`; under `flops`, `batch`, at the baseline's steps.
        unmatched: why arms outside the tolerance may be ranked all the same; the table prints it.
    """

    on: MatchMode
    phase: Literal["mixture", "all"] = "mixture"
    across: bool = False
    by: dict[Name, Knobs] = Field(default_factory=dict)
    unmatched: str = ""


class Replicates(Spec):
    """Say what is redone in each replicate, and how many there are."""

    from_: Literal["mixture", "branch", "seed"] = Field(alias="from")
    count: Annotated[int, Field(gt=0, le=1000)]


def _names(value: object) -> object:
    if isinstance(value, str):
        return (value,) if value else ()
    return value


TableNames = Annotated[tuple[Name, ...], BeforeValidator(_names)]
"""Names of published tables; one name alone may be written without brackets."""


class ReportSpec(Spec):
    """Choose the report's columns.

    Attributes:
        columns: selectors over score fields, `kind/domain/metric`, `*` for any.
        published: names of files in `reports/published/`, or one name; the first that has a number
            is asked. None when nothing was printed.
        published_at: scale -> such names, where the paper printed other tables of that scale.
        delta: smallest effect that counts, as a relative change in perplexity.
        external: scores files of checkpoints that are no arms (`external.py`), beside this file.
        experts: whether the dense experts stand below the arms too, not ranked.
    """

    columns: Annotated[tuple[str, ...], Field(min_length=1)]
    published: TableNames = ()
    published_at: dict[Name, TableNames] = Field(default_factory=dict)
    delta: PositiveFloat = 0.005
    external: tuple[str, ...] = ()
    experts: bool = False


class AblationSpec(Spec):
    """Hold one file of `ablations/`, arms and settings still raw (`axes.py`, `arms.py`).

    Attributes:
        at: scale -> dotted settings that suit the file to it, as `--set` takes them.
        budgets: multiples of the mixture phase's tokens, each a setting (`budgets.py`).
        evaluate: what is measured of the trained models beside held-out loss.
        claims: ids of `ablations/claims.yaml`.
        own_claims: id -> a claim that no paper made.
    """

    schema_version: SchemaVersion = Field(alias="schema")
    id: Name
    aliases: tuple[Name, ...] = ()
    title: str
    source: Source
    answers: tuple[str, ...] = ()
    question: str
    recipe: Name
    scale: Name
    match: Match
    baseline: Name
    replicates: Replicates
    at: dict[Name, dict[str, Any]] = Field(default_factory=dict)
    common: dict[str, Any] = Field(default_factory=dict)
    arms: dict[Name, dict[str, Any]]
    settings: dict[str, Any] = Field(default_factory=dict)
    budgets: tuple[PositiveFloat, ...] = ()
    evaluate: EvaluationSpec = EvaluationSpec()
    report: ReportSpec
    claims: tuple[str, ...] = ()
    own_claims: dict[Name, Claim] = Field(default_factory=dict)
