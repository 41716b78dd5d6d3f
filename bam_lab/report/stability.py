"""How steadily an arm's mixture phase went, from its training log (`record/metrics.py`).

Spikes of the loss are counted where single steps were logged on the largest step of each row, so
that none hides in a mean of ten. A mean and a maximum have other noise, so all arms of a report are
counted by one rule: on the rows' means as soon as one log among them is older than `loss_max`.

Quantiles of gradient norms, before clipping, are of the single steps that a row ends with: a sample
of one step in ten, in older logs too. The largest norm of each row's steps tells of every step.
"""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, median
from typing import Any

import numpy as np

from bam_lab.report.costs import method_of
from bam_lab.report.evidence import Evidence, MeasureCell, Stability, StageFact
from bam_lab.report.paths import lineages
from bam_lab.spec.experts import is_mixture
from bam_lab.spec.measures import MeasureName
from bam_lab.spec.methods import BAMMethod, MethodSpec

Row = Mapping[str, Any]

WINDOW = 10
"""Rows before a row that say what its loss should be."""
SPREADS, LEAST = 6.0, 0.05
"""How far above their median it lies to be a spike: median deviations, and nats."""
QUANTILES = (50, 90, 99)
"""Percent of the logged steps whose gradient norms are at most a quantile."""
HIGH = 95
"""Percent of the rows whose largest gradient norm is at most `grad_norm_high`."""

NOT_LOGGED = "not logged: trained before the log kept it"
NO_CHURN = "not logged: trained before the log kept it, or validated once only"


def spikes_of(losses: Sequence[float]) -> int:
    """Count the spikes of a logged loss; rows in a row that are above count once.

    A row is a spike when it lies `SPREADS` median absolute deviations, and `LEAST` nats, above the
    median of the `WINDOW` rows before it.
    """
    count, inside = 0, False
    for index in range(WINDOW, len(losses)):
        before = losses[index - WINDOW : index]
        middle = median(before)
        deviation = median(abs(value - middle) for value in before)
        above = losses[index] > middle + max(SPREADS * deviation, LEAST)
        count += above and not inside
        inside = above
    return count


def stability_of(evidence: Evidence, logs: Mapping[str, Sequence[Row]]) -> tuple[Stability, ...]:
    """Return the stability of each arm's replicates whose mixture phases have finished.

    Args:
        evidence: its arms and stages.
        logs: key of a finished mixture phase -> all rows of its log.
    """
    trained = [row for rows in logs.values() for row in rows if "loss" in row]
    single_steps = all("loss_max" in row for row in trained)
    found = []
    for arm in evidence.arms:
        for replicate, stages in lineages(evidence, arm.name).items():
            own = [stage for stage in stages if stage.name == "mixture"]
            if own:
                found.append(_of_phase(arm.name, replicate, own, logs, single_steps))
    return tuple(found)


def _of_phase(
    arm: str,
    replicate: int | None,
    stages: Sequence[StageFact],
    logs: Mapping[str, Sequence[Row]],
    single_steps: bool,
) -> Stability:
    """Return the stability over all parts of one phase; no spike is sought across their borders."""
    parts = [[row for row in logs[stage.key] if "loss" in row] for stage in stages]
    rows = [row for part in parts for row in part]
    loss = "loss_max" if single_steps else "loss"
    norms = [row["grad_norm"] for row in rows]
    largest = [row["grad_norm_max"] for row in rows if "grad_norm_max" in row]
    whole = len(largest) == len(rows) > 0
    churn = [row["churn"] for stage in stages for row in logs[stage.key] if "churn" in row]
    return Stability(
        arm=arm,
        replicate=replicate,
        steps=sum(max(int(stage.ledger["steps"]), 1) for stage in stages),
        spikes=sum(spikes_of([row[loss] for row in part]) for part in parts),
        single_steps=single_steps,
        rows=len(rows),
        grad_norm={str(q): float(np.percentile(norms, q)) for q in QUANTILES if norms},
        grad_norm_high=float(np.percentile(largest, HIGH)) if whole else None,
        churn={
            kind: tuple(point[kind] for point in churn if kind in point)
            for kind in dict.fromkeys(kind for point in churn for kind in point)
        },
        runs=tuple(stage.key for stage in stages),
    )


def stability_cells(view: Evidence) -> Iterator[MeasureCell]:
    """Yield the measures of each arm and replicate; of router churn only where it has routers."""
    for found in view.stability:
        for name, value, why in _measures(found, method_of(view, found.arm)):
            yield MeasureCell(
                arm=found.arm,
                replicate=found.replicate,
                measure=name,
                value=value,
                runs=found.runs,
                missing=why if value is None else "",
            )


def _measures(
    found: Stability, method: MethodSpec
) -> Iterator[tuple[MeasureName, float | None, str]]:
    yield "loss_spikes", 1000 * found.spikes / found.steps, ""
    yield "grad_norm_median", found.grad_norm.get("50"), NOT_LOGGED
    yield "grad_norm_high", found.grad_norm_high, NOT_LOGGED
    if is_mixture(method):
        yield "router_churn", _mean(found.churn.get("ffn", ())), NO_CHURN
    if isinstance(method, BAMMethod):
        yield "attention_churn", _mean(found.churn.get("attention", ())), NO_CHURN


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
