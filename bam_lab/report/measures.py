"""Measures beside losses: from arithmetic, from the ledgers, and from the metrics of training.

What a router did is a mean over the last tenth of the logged steps of the mixture phase
(`Curve.final`); how steadily the phase went (`stability.py`) is of all of it.
"""

import math
from collections.abc import Sequence

from bam_lab.errors import SpecError
from bam_lab.report.costs import cost_of
from bam_lab.report.evaluated_measures import evaluation_cells
from bam_lab.report.evidence import Curve, Evidence, MeasureCell, StageFact
from bam_lab.report.paths import critical_seconds, lineages
from bam_lab.report.settings import views
from bam_lab.report.stability import stability_cells
from bam_lab.report.transfer import transfer_cells
from bam_lab.spec.measures import MEASURES, MeasureName

LOGGED: dict[MeasureName, str] = {
    "load_max": "load_max_ffn",
    "load_min": "load_min_ffn",
    "experts_used": "used_ffn",
    "attention_load_max": "load_max_attention",
    "router_entropy": "entropy_ffn",
    "attention_entropy": "entropy_attention",
    "tokens_dropped": "dropped_ffn",
}
"""Measure -> its name in `metrics.jsonl`."""


def measures_of(evidence: Evidence) -> tuple[MeasureCell, ...]:
    """Return every measure that there is, arm by arm, of all but the measures in `evidence`."""
    cells: list[MeasureCell] = []
    for _, view in views(evidence):
        for arm in view.arms:
            cells += _costs(view, arm.name)
            cells += _logged(view, arm.name)
            cells += _spent(view, arm.name)
        cells += stability_cells(view)
        cells += transfer_cells(view)
        cells += evaluation_cells(view)
    return tuple(cells)


def _costs(view: Evidence, arm: str) -> list[MeasureCell]:
    cells = []
    for name, measure in MEASURES.items():
        if measure.source != "costs":
            continue
        try:
            value, missing = float(cost_of(view, arm, name)), ""
        except SpecError as error:
            value, missing = None, str(error)
        cells.append(
            MeasureCell(arm=arm, replicate=None, measure=name, value=value, missing=missing)
        )
    return cells


def _logged(view: Evidence, arm: str) -> list[MeasureCell]:
    return [
        MeasureCell(
            arm=arm,
            replicate=curve.replicate,
            measure=measure,
            value=curve.final[name],
            runs=(curve.key,),
        )
        for curve in _last_parts(view, arm)
        for measure, name in LOGGED.items()
        if name in curve.final
    ]


def _last_parts(view: Evidence, arm: str) -> list[Curve]:
    """Return the curve that ends each replicate's mixture phase."""
    last = {c.replicate: c for c in view.curves if c.name == "mixture" and c.arm == arm}
    return list(last.values())


def _spent(view: Evidence, arm: str) -> list[MeasureCell]:
    """Return the measures of the ledgers, replicate by replicate."""
    by_key = {stage.key: stage for stage in view.stages}
    cells = []
    for replicate, stages in lineages(view, arm).items():
        own = [stage for stage in stages if stage.name == "mixture"]
        if not own:
            continue
        after = [stage for stage in stages if stage.name in ("expert", "mixture")]
        found: dict[MeasureName, float] = {
            "seconds_per_step": _sum(own, "wall_seconds") / _sum(own, "steps"),
            "tokens_per_device_second": _sum(after, "tokens") / _sum(after, "device_seconds"),
            "critical_path_seconds": critical_seconds(stages, by_key) - _seed_seconds(stages),
        }
        cells += [
            MeasureCell(
                arm=arm,
                replicate=replicate,
                measure=name,
                value=value,
                runs=tuple(stage.key for stage in (own if name == "seconds_per_step" else after)),
            )
            for name, value in found.items()
            if math.isfinite(value)
        ]
    return cells


def _seed_seconds(stages: Sequence[StageFact]) -> float:
    return _sum([stage for stage in stages if stage.name == "seed_model"], "wall_seconds")


def _sum(stages: Sequence[StageFact], key: str) -> float:
    return math.fsum(float(stage.ledger.get(key, 0.0)) for stage in stages)
