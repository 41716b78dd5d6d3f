"""The table of stability: spikes, gradient norms and router churn by arm, and its spread."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean, stdev

from bam_lab.report.blocks import AVERAGE, arm_blocks, missing_reason, runs_of
from bam_lab.report.evidence import Evidence
from bam_lab.report.measures_table import shown_measure
from bam_lab.report.stability import HIGH, LEAST, QUANTILES, SPREADS, WINDOW
from bam_lab.report.table import Column, Row, Table, Value, hoist, missing, nothing
from bam_lab.report.tables import arms_in_order, mark_of
from bam_lab.spec.measures import MEASURES, MeasureName

_CHURN: tuple[MeasureName, ...] = ("router_churn", "attention_churn")
_OLD = "not logged in these results, which are older"


def stability_table(evidence: Evidence) -> Table | None:
    """Return how steadily every arm was trained, or why that is not known; None before any was."""
    if not any(curve.name == "mixture" for curve in evidence.curves):
        return None
    rows = []
    for arm in arms_in_order(evidence):
        values = (*_of_log(evidence, arm), *_spreads(evidence, arm))
        row = Row(arm, values, mark_of(evidence, arm))
        rows.append(hoist(row) if all(value.note for value in values) else row)
    return Table(
        label="stability",
        title="Stability",
        caption=_caption(evidence),
        corner="arm",
        columns=tuple(
            Column(name)
            for name in (
                "spikes",
                *(f"norm {quantile}%" for quantile in QUANTILES),
                "norm high",
                "FFN churn",
                "att. churn",
                "sd valid",
                "sd test",
            )
        ),
        rows=tuple(rows),
    )


def _caption(evidence: Evidence) -> str:
    single = any(found.single_steps for found in evidence.stability)
    counted = "largest single step" if single else "mean loss"
    return (
        "Of the mixture phase, from its log, mean over replicates. Spikes: in 1,000 steps, of a "
        f"row's {counted} over {SPREADS:g} median deviations and {LEAST:g} nats above the median "
        f"of the {WINDOW} rows before. Norm: of the gradient before clipping, quantiles of single "
        f"steps, one a row; high: the quantile {HIGH}% of the rows' largest. Churn: share of "
        "decisions about the same held-out tokens whose first choice is another than a validation "
        "before, a tenth of the phase; of soft routing and merged experts, the total variation "
        "distance of the weights; mean over layers and the phase. Sd: standard deviation over "
        "replicates of the final loss in nats a token, mean over domains, on the validation slice "
        "and on the test."
    )


def _of_log(evidence: Evidence, arm: str) -> Iterator[Value]:
    """Yield the cells that are from the logs of an arm's mixture phases."""
    if not any(s.name == "mixture" and s.arm == arm for s in evidence.stages):
        yield from [nothing("the arm has no mixture phase")] * (len(QUANTILES) + 4)
        return
    found = [one for one in evidence.stability if one.arm == arm]
    runs = tuple(dict.fromkeys(run for one in found for run in one.runs))
    why = missing_reason(evidence, arm, evidence.domains) or _OLD
    yield _measured(evidence, arm, "loss_spikes", why)
    for quantile in map(str, QUANTILES):
        norms = [one.grad_norm[quantile] for one in found if quantile in one.grad_norm]
        shown = _shown(norms, "grad_norm_median", runs, why)
        yield replace(shown, title=f"of {sum(one.rows for one in found)} steps") if norms else shown
    yield _measured(evidence, arm, "grad_norm_high", why)
    for measure in _CHURN:
        yield _measured(evidence, arm, measure, "" if found else why)


def _measured(evidence: Evidence, arm: str, name: MeasureName, why: str) -> Value:
    own = [cell for cell in evidence.measures if (cell.arm, cell.measure) == (arm, name)]
    values = [cell.value for cell in own if cell.value is not None]
    runs = tuple(dict.fromkeys(run for cell in own for run in cell.runs))
    return _shown(values, name, runs, next((c.missing for c in own if c.missing), why))


def _shown(values: Sequence[float], name: MeasureName, runs: tuple[str, ...], why: str) -> Value:
    if values:
        return Value(shown_measure(fmean(values), MEASURES[name]), fmean(values), runs=runs)
    return missing(why) if why else nothing("the arm has no such router")


def _spreads(evidence: Evidence, arm: str) -> Iterator[Value]:
    """Yield the standard deviations over replicates of the final losses."""
    last = {c.replicate: c for c in evidence.curves if c.name == "mixture" and c.arm == arm}
    valid = {curve.key: curve.valid[-1][1] for curve in last.values() if curve.valid}
    whole = {key: row for key, row in valid.items() if {*evidence.domains} <= row.keys()}
    yield _spread(
        [fmean(row[domain] for domain in evidence.domains) for row in whole.values()], tuple(whole)
    )
    tested = arm_blocks(evidence, AVERAGE)
    yield _spread(
        [loss for (name, _), loss in tested.items() if name == arm],
        runs_of(evidence, arm, evidence.domains),
    )


def _spread(losses: Sequence[float], runs: tuple[str, ...]) -> Value:
    if len(losses) < 2:
        return missing(f"a spread takes two replicates, there is {len(losses) or 'none'}")
    return Value(f"{stdev(losses):.4f}", stdev(losses), runs=runs)
