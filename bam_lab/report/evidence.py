"""All that a report is made from, as one small document: `results.json`.

`collect.py` gathers it from a store; everything after that (verdicts, tables, figures, pages) is
computed from it alone, so the committed file renders the same report years later without the store.
Per-document losses and full metrics stay in the store; their summaries are here.
"""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from bam_lab.errors import InputError
from bam_lab.spec.base import Spec
from bam_lab.spec.external import External

Role = Literal["seed_model", "expert", "step-0", "arm"]


class Cell(Spec):
    """Hold what one model scored on one held-out domain (test split), or why it did not.

    Attributes:
        role: what was evaluated.
        name: the arm; of an expert its domain; `seed_model`.
        replicate: None when all replicates share the model.
        nll: mean negative log-likelihood, nats a token; None when missing.
        evaluation: store key of the stage that scores it; empty in older results.
        runs: store keys of the stages that made it: the model's and the evaluation's.
        missing: why there is no number.
    """

    role: Role
    name: str
    replicate: int | None
    domain: str
    nll: float | None
    bits_per_byte: float | None
    tokens: int = 0
    bytes: int = 0
    evaluation: str = ""
    runs: tuple[str, ...] = ()
    missing: str = ""


class MeasureCell(Spec):
    """Hold one measure (`spec/measures.py`) of one arm and replicate, or why there is none.

    Attributes:
        replicate: None where it is the same for all, as arithmetic is.
        domain: the domain or task; empty for a measure without.
        value: in the measure's unit; None when missing.
        runs: store keys of the stages that it is from.
        items, chance: how many answers a share is of, and what guessing gives; 0 for no such share.
        missing: why there is no number.
    """

    arm: str
    replicate: int | None
    measure: str
    domain: str = ""
    value: float | None
    runs: tuple[str, ...] = ()
    items: int = 0
    chance: float = 0.0
    missing: str = ""


class Evaluated(Spec):
    """Hold what one stage measured of one model beside held-out loss, or why it did not.

    Attributes:
        kind: `tasks`, `routing`, `probe` or `latency`.
        about: which probe; of `tasks` `re-routed`, or empty as for the others.
        role, name, replicate: the model, as of a `Cell`; of `latency` empty, its rows name arms.
        rows: as the stage wrote them, without what is None; those of single layers in one replicate
            only.
        answers: task -> value and, where it is one of a few choices, choice of every item.
        examples: of `routing`, tokens that go to an expert more than others.
        turns: of `latency`, the seconds of every round by arm, batch and way of computing.
        left_out: what the model cannot be asked -> why.
        runs: store keys of the stages that made it.
        missing: why there are no rows.
    """

    kind: Literal["tasks", "routing", "probe", "latency"]
    about: str = ""
    role: str = ""
    name: str = ""
    replicate: int | None = None
    rows: tuple[dict[str, Any], ...] = ()
    answers: dict[str, dict[str, Any]] = Field(default_factory=dict)
    examples: tuple[dict[str, Any], ...] = ()
    turns: tuple[dict[str, Any], ...] = ()
    left_out: dict[str, str] = Field(default_factory=dict)
    runs: tuple[str, ...] = ()
    missing: str = ""


class SuiteFact(Spec):
    """Hold what a suite asks, as the report needs it.

    Attributes:
        tasks: name, group, shots, metric, filter, chance (None for a loss).
        lacking: tasks of the paper's table that cannot be asked -> why.
    """

    name: str
    title: str
    source: str = ""
    tasks: tuple[dict[str, Any], ...]
    lacking: dict[str, str] = Field(default_factory=dict)


class StageFact(Spec):
    """Hold one stage's place in the graph, its state and its ledger (empty where it keeps none).

    Attributes:
        inputs: role -> key of the stage that gives it.
        failure: why the last attempt failed, if it did.
    """

    key: str
    name: str
    label: str
    role: str
    arm: str | None
    replicate: int | None
    domain: str | None
    inputs: dict[str, str]
    done: bool
    failure: str = ""
    ledger: dict[str, Any] = Field(default_factory=dict)


class Curve(Spec):
    """Hold one training stage's course, thinned; stretches of one phase stand in their order.

    Attributes:
        first_step: steps of the phase before the stage's; its own are counted from there.
        step_tokens: tokens of one optimizer step.
        step_flops: model training FLOPs of one optimizer step.
        train: (step, language-model loss in nats), means over equal stretches.
        valid: (step, {domain: nats}).
        final: mean of every logged number over the last tenth of the rows.
    """

    key: str
    name: str
    arm: str | None
    replicate: int | None
    domain: str | None
    step_tokens: float
    step_flops: float
    train: tuple[tuple[int, float], ...]
    valid: tuple[tuple[int, dict[str, float]], ...]
    final: dict[str, float]
    first_step: int = 0


class Stability(Spec):
    """Hold how steadily the mixture phase of one arm and replicate went (`report/stability.py`).

    Attributes:
        spikes: of the training loss, in all `steps`.
        single_steps: whether they are counted on each row's largest step, not on its mean.
        rows: of the training log.
        grad_norm: percent -> quantile of the norms of single steps, one a row.
        grad_norm_high: quantile of each row's largest norm; None where not all rows have one.
        churn: ffn or attention -> router churn since the validation before, point by point.
        runs: store keys of the phase's parts.
    """

    arm: str
    replicate: int | None
    steps: int
    spikes: int
    single_steps: bool
    rows: int
    grad_norm: dict[str, float]
    grad_norm_high: float | None
    churn: dict[str, tuple[float, ...]]
    runs: tuple[str, ...]


class Receipt(Spec):
    """Hold the step-0 proofs of one upcycled model."""

    key: str
    arm: str
    replicate: int | None
    facts: dict[str, Any]


class Noise(Spec):
    """Hold the evaluation noise of one arm on one domain, from a bootstrap over documents.

    Attributes:
        bits_per_byte_se: standard error of the arm's own bits per byte.
        difference_se: standard error of its nll minus the baseline's on the same documents (nats).
    """

    arm: str
    domain: str
    bits_per_byte_se: float
    difference_se: float
    documents: int
    sources: int


class Provenance(Spec):
    """Hold one way in which stages were made, and which stages share it."""

    numerics: dict[str, Any]
    packages: dict[str, str]
    git: dict[str, str]
    hardware: dict[str, Any]
    stages: tuple[str, ...]


class Order(Spec):
    """Hold how alike neighbouring documents are in one order, domain by domain (`order.json`)."""

    key: str
    label: str
    domains: dict[str, dict[str, Any]]


class Arm(Spec):
    """Hold one arm: its method as resolved, and the budget that the match gave it.

    Attributes:
        experts: what is behind each expert, in router-column order.
        branches: the dense models that it reads, by the names of their stages.
        data: what its branches and its mixture phase read, nothing left to the recipe.
        setting: under which of `settings` it is trained; empty where there is one only.
        base: its name in the file, before axes and settings.
        axes: axis -> value, its own axes and its setting's.
    """

    name: str
    method: dict[str, Any]
    experts: tuple[str, ...]
    branches: tuple[str, ...] = ()
    data: dict[str, Any] = Field(default_factory=dict)
    budget: dict[str, Any]
    setting: str = ""
    base: str = ""
    axes: dict[str, Any] = Field(default_factory=dict)


class Setting(Spec):
    """Hold one setting under which every arm is trained, as a complete ablation's parts.

    Attributes:
        axes: axis -> value.
        changes: what it changes, dotted path -> value.
        recipe, sizes, model: as resolved under it.
    """

    name: str
    axes: dict[str, Any] = Field(default_factory=dict)
    changes: dict[str, Any] = Field(default_factory=dict)
    recipe: dict[str, Any]
    sizes: dict[str, Any]
    model: dict[str, Any]


class Evidence(Spec):
    """Hold one ablation at one scale.

    Attributes:
        ablation, recipe, sizes, model: the resolved specs as plain data.
        overrides: what `--set` changed.
        added: domains of the user's own. Either marks the run, and its claims are out of scope.
        domains: columns, the general domain first; averages and claims are over these.
        general: the domain that is, or stands in for, the papers' Common Crawl.
        held_out_only: domains that every model is scored on and none is trained on.
        corpus: the corpus manifest; empty before the corpus is built.
        crossed: how different its domains are (`crossed.json`); empty for older corpora.
        orders: the orders of documents that stages read.
        external: scores of checkpoints that are no arms, as their files say them.
        settings: the settings; none where the ablation has one only.
        stability: how steadily the arms were trained; none in results from before it was kept.
        measures: what was measured beside losses; none in results from before that.
        suites: the suites of tasks that were asked.
        items: task -> the items that all models were asked: `digest`, and of each the number of its
            document and, of multiple choice, of the right answer.
        evaluations: what tasks, probes and routers gave, model by model.
        command: what rebuilds it.
    """

    schema_version: Literal[1] = 1
    id: str
    scale: str
    overrides: tuple[str, ...]
    added: tuple[str, ...] = ()
    replicates: int
    ablation: dict[str, Any]
    recipe: dict[str, Any]
    sizes: dict[str, Any]
    model: dict[str, Any]
    domains: tuple[str, ...]
    general: str = ""
    held_out_only: tuple[str, ...] = ()
    arms: tuple[Arm, ...]
    cells: tuple[Cell, ...]
    noise: tuple[Noise, ...]
    stages: tuple[StageFact, ...]
    curves: tuple[Curve, ...]
    receipts: tuple[Receipt, ...]
    provenance: tuple[Provenance, ...]
    corpus: dict[str, Any]
    crossed: dict[str, Any] = Field(default_factory=dict)
    orders: tuple[Order, ...] = ()
    external: tuple[External, ...] = ()
    settings: tuple[Setting, ...] = ()
    stability: tuple[Stability, ...] = ()
    measures: tuple[MeasureCell, ...] = ()
    suites: tuple[SuiteFact, ...] = ()
    items: dict[str, dict[str, Any]] = Field(default_factory=dict)
    evaluations: tuple[Evaluated, ...] = ()
    command: str

    @property
    def changes(self) -> tuple[str, ...]:
        """What the user changed, as the options that did."""
        return (
            *(f"--set {text}" for text in self.overrides),
            *(f"--domain {name}" for name in self.added),
        )

    @property
    def baseline(self) -> str:
        """The arm that all others are compared with; with settings its name in the file."""
        return str(self.ablation["baseline"])

    def baseline_of(self, arm: str) -> str:
        """Return the arm that `arm` is compared with: the baseline under its setting."""
        setting = self.arm(arm).setting
        return f"{self.baseline}@{setting}" if setting else self.baseline

    @property
    def match_on(self) -> str:
        """What the arms are matched on: `tokens` or `flops`."""
        return str(self.ablation["match"]["on"])

    @property
    def delta(self) -> float:
        """The smallest effect that counts, as a relative change in perplexity."""
        return float(self.ablation["report"].get("delta", 0.005))

    def arm(self, name: str) -> Arm:
        """Return one arm by name."""
        return next(arm for arm in self.arms if arm.name == name)


def read_results(results: Path) -> Evidence:
    """Read a report's `results.json`.

    Raises:
        InputError: it cannot be read, or is not one.
    """
    try:
        return Evidence.model_validate_json(results.read_bytes())
    except OSError as error:
        raise InputError(f"{results} must be readable, got: {error.strerror}.") from None
    except ValidationError as error:
        count = error.error_count()
        raise InputError(
            f"{results} must be a results.json of this version, got {count} problems. "
            "Render it again from its store."
        ) from None
