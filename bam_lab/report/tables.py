"""The two tables that answer the question: change against the baseline, and absolute values."""

import math
from collections.abc import Sequence
from typing import Literal

from bam_lab.report.blocks import (
    AVERAGE,
    arm_blocks,
    arm_cells,
    dense_experts,
    effect,
    missing_reason,
    runs_of,
)
from bam_lab.report.evidence import Cell, Evidence
from bam_lab.report.external import external_caption, external_rows
from bam_lab.report.printed import Printed, printed_domains, printed_gap, printed_number
from bam_lab.report.scope import counted, signed
from bam_lab.report.settings import setting_of, shown, views
from bam_lab.report.standing import looks_ahead, match_check, matching, unranked
from bam_lab.report.stats import LEVEL, Difference, block_difference, p_lower, percent
from bam_lab.report.table import Column, Row, Table, Value, hoist, missing, nothing
from bam_lab.spec.published import Tables, places


def effects_table(evidence: Evidence, published: Tables) -> Table:
    """Return the change in perplexity against the baseline, ours beside the paper's, in percent."""
    places = [*evidence.domains, AVERAGE]
    arms = arms_in_order(evidence)
    printed = {p for p in places if any(printed_gap(evidence, published, arm, p) for arm in arms)}
    columns = []
    for place in places:
        columns.append(Column("ours", place))
        if place in printed:
            columns.append(Column("paper", place, dim=True))
    bold = {place: _best(evidence, place) for place in places}
    rows = []
    for arm in arms:
        values = []
        for place in places:
            values.append(_effect_value(evidence, arm, place, arm in bold[place]))
            if place in printed:
                values.append(_paper_effect(evidence, published, arm, place))
        rows.append(_row(evidence, arm, values))
    return Table(
        label=labelled("effects", evidence),
        title=f"Change in test perplexity against {shown(evidence.baseline)}, %{under(evidence)}",
        caption=_effects_caption(evidence, published),
        corner="arm",
        columns=tuple(columns),
        rows=tuple(rows),
    )


def absolute_table(evidence: Evidence, published: Tables) -> Table:
    """Return perplexity and bits per byte, and the paper's perplexity of domains like ours."""
    if not any(table.key(d, "perplexity") for table in published for d in evidence.domains):
        published = ()
    columns = []
    for domain in evidence.domains:
        columns += [Column("ppl", domain), Column("bits/byte", domain)]
        if published:
            columns.append(Column("paper ppl", domain, dim=True))
    rows = []
    for arm in arms_in_order(evidence):
        values = []
        for domain in evidence.domains:
            values += _absolute_values(evidence, arm, domain)
            if published:
                found = printed_number(evidence, published, arm, domain, "perplexity")
                values.append(paper_value(found, ".2f"))
        rows.append(_row(evidence, arm, values))
    if evidence.ablation["report"].get("experts"):
        rows += _expert_rows(evidence, 3 if published else 2)
    rows += external_rows(evidence, 3 if published else 2)
    return Table(
        label=labelled("absolute", evidence),
        title=f"Test perplexity and bits per byte{under(evidence)}",
        caption=_absolute_caption(evidence, published),
        corner="arm",
        columns=tuple(columns),
        rows=tuple(rows),
    )


def noise_table(evidence: Evidence) -> Table | None:
    """Return the evaluation noise; None where nothing was evaluated."""
    if not evidence.noise:
        return None
    known = {(noise.arm, noise.domain): noise for noise in evidence.noise}
    columns, rows = [], []
    for domain in evidence.domains:
        columns += [Column("change, %", domain), Column("bits/byte", domain)]
    for arm in arms_in_order(evidence):
        values = []
        for domain in evidence.domains:
            noise = known.get((arm, domain))
            if noise is None:
                values += [missing(missing_reason(evidence, arm, (domain,)))] * 2
                continue
            change = 100 * noise.difference_se
            runs = runs_of(evidence, arm, (domain,))
            values += [
                nothing("the baseline") if arm == evidence.baseline else _se(change, 2, runs),
                _se(noise.bits_per_byte_se, 3, runs),
            ]
        rows.append(hoist(Row(shown(arm), tuple(values), mark_of(evidence, arm))))
    return Table(
        label=labelled("noise", evidence),
        title=f"Evaluation noise{under(evidence)}",
        caption=(
            "Standard error of the change against the baseline and of bits per byte if other "
            "held-out documents of such sources had been read: a bootstrap over documents, sources "
            "drawn first. It is the noise of the test set, not of training."
        ),
        corner="arm",
        columns=tuple(columns),
        rows=tuple(rows),
    )


def _se(value: float, digits: int, runs: tuple[str, ...]) -> Value:
    return Value(f"{value:.{digits}f}", value, runs=runs)


def arms_in_order(evidence: Evidence) -> list[str]:
    """Return the baseline, the other ranked arms, then those that are not ranked; by setting."""
    order = []
    for _, view in views(evidence):
        others = [arm.name for arm in view.arms if arm.name != view.baseline]
        order += [view.baseline, *sorted(others, key=lambda arm: bool(unranked(view, arm)))]
    return order


def mark_of(evidence: Evidence, arm: str) -> Literal["", "baseline"]:
    """Return the mark of an arm's row, where rows are not ranked."""
    return "baseline" if arm == evidence.baseline_of(arm) else ""


def labelled(label: str, evidence: Evidence) -> str:
    """Return the label of a table that there is one of for every setting."""
    return f"{label}-{setting_of(evidence)}" if setting_of(evidence) else label


def under(evidence: Evidence) -> str:
    """Return how a title names the setting of a view."""
    return f", under {setting_of(evidence)}" if setting_of(evidence) else ""


def digits_of(error: float) -> int:
    """Return the decimals that show two significant digits of an error, between 1 and 3."""
    if error <= 0:
        return 2
    return min(3, max(1, 1 - math.floor(math.log10(error))))


def _row(evidence: Evidence, arm: str, values: Sequence[Value]) -> Row:
    note = looks_ahead(evidence, arm)
    if arm == evidence.baseline:
        return hoist(Row(shown(arm), tuple(values), "baseline", note))
    why = unranked(evidence, arm)
    if why:
        note = f"{shown(arm)} is shown but not ranked: {why}."
    return hoist(Row(shown(arm), tuple(values), "unranked" if why else "", note))


def _places(evidence: Evidence, place: str) -> tuple[str, ...]:
    return evidence.domains if place == AVERAGE else (place,)


def _effect_value(evidence: Evidence, arm: str, place: str, bold: bool) -> Value:
    domains = _places(evidence, place)
    runs = runs_of(evidence, arm, domains)
    if arm == evidence.baseline:
        why = missing_reason(evidence, arm, domains)
        measured = any(name == arm for name, _ in arm_blocks(evidence, place))
        return Value("0", 0.0, runs=runs, bold=bold) if measured else missing(why)
    found = effect(evidence, arm, evidence.baseline, place)
    if found is None:
        why = missing_reason(evidence, arm, domains)
        return missing(why or missing_reason(evidence, evidence.baseline, domains))
    note = ""
    if found.replicates < evidence.replicates:
        why = missing_reason(evidence, arm, domains)
        why = why or missing_reason(evidence, evidence.baseline, domains)
        note = f"{found.replicates} of {evidence.replicates} replicates ({why})."
    title = _noise_title(evidence, arm, place)
    runs = tuple(dict.fromkeys([*runs, *runs_of(evidence, evidence.baseline, domains)]))
    return Value(_with_spread(found), percent(found.mean), bold, runs=runs, note=note, title=title)


def _with_spread(found: Difference) -> str:
    mean = percent(found.mean)
    if not found.judged:
        return signed(mean, 2)
    low, high = (percent(end) for end in found.interval())
    half = (high - low) / 2
    digits = digits_of(half)
    return f"{signed(mean, digits)} ± {half:.{digits}f}"


def _noise_title(evidence: Evidence, arm: str, place: str) -> str:
    for noise in evidence.noise:
        if (noise.arm, noise.domain) == (arm, place):
            return (
                f"evaluation noise (s.e. over {noise.documents} documents of {noise.sources} "
                f"sources): {100 * noise.difference_se:.2f}%"
            )
    return ""


def _paper_effect(evidence: Evidence, published: Tables, arm: str, place: str) -> Value:
    found = printed_gap(evidence, published, arm, place)
    if found is None:
        return nothing("not printed")
    value = percent(found.value)
    text = signed(value, 2) if arm != evidence.baseline else "0"
    return Value(text, value, dim=True, note=found.note)


def paper_value(found: Printed | None, style: str) -> Value:
    """Return the cell of a printed number, what is wrong with it as a footnote."""
    if found is None:
        return nothing("not printed")
    return Value(f"{found.value:{style}}", found.value, dim=True, note=found.note)


def _best(evidence: Evidence, place: str) -> set[str]:
    """Return the best ranked arm and all that are not significantly worse; none without error."""
    blocks = arm_blocks(evidence, place)
    ranked = [a.name for a in evidence.arms if not unranked(evidence, a.name)]
    ranked = [name for name in ranked if any(arm == name for arm, _ in blocks)]
    gaps = {n: block_difference(blocks, n, evidence.baseline) for n in ranked}
    means = {name: gap.mean for name, gap in gaps.items() if gap is not None}
    unjudged = any(gap is not None and not gap.judged for gap in gaps.values())
    if len(means) < 2 or unjudged:
        return set()
    best = min(means, key=lambda name: means[name])
    found = {best}
    for name in means:
        gap = block_difference(blocks, best, name)
        if name != best and gap is not None and gap.judged and p_lower(gap) >= LEVEL:
            found.add(name)
    return found


def _absolute_values(evidence: Evidence, arm: str, domain: str) -> list[Value]:
    cells = [c for c in arm_cells(evidence, arm, domain) if c.nll is not None]
    if not cells:
        gone = missing(missing_reason(evidence, arm, (domain,)))
        return [gone, gone]
    return _means(cells, runs_of(evidence, arm, (domain,)))


def _expert_rows(evidence: Evidence, columns: int) -> list[Row]:
    """Return a row of each dense expert; `columns` of a domain, of which the first two are ours."""
    rows = []
    for name in dense_experts(evidence):
        values = []
        for domain in evidence.domains:
            wanted = ("expert", name, domain)
            mine = [c for c in evidence.cells if (c.role, c.name, c.domain) == wanted]
            cells = [cell for cell in mine if cell.nll is not None]
            if cells:
                values += _means(cells, tuple(run for cell in cells for run in cell.runs))
            else:
                values += [missing(next((c.missing for c in mine), "not part of this run"))] * 2
            values += [nothing("printed only with other measures")] * (columns - 2)
        rows.append(hoist(Row(f"{name} expert", tuple(values), "external")))
    return rows


def _means(cells: Sequence[Cell], runs: tuple[str, ...]) -> list[Value]:
    """Return perplexity and bits per byte of cells that have them, over replicates."""
    values = []
    perplexities = [math.exp(c.nll) for c in cells if c.nll is not None]
    bits = [c.bits_per_byte for c in cells if c.bits_per_byte is not None]
    for numbers, most in ((perplexities, 2), (bits, 3)):
        mean = math.fsum(numbers) / len(numbers) if numbers else math.nan
        text = f"{mean:.{most}f}"
        if len(numbers) > 1:
            spread = math.sqrt(sum((n - mean) ** 2 for n in numbers) / (len(numbers) - 1))
            text = f"{mean:.{most}f} ± {spread:.{most}f}"
        values.append(Value(text, mean, runs=runs))
    return values


def _effects_caption(evidence: Evidence, published: Tables) -> str:
    parts = ["Lower is better."]
    if evidence.replicates == 1:
        parts.append("One replicate: direction and size only; nothing is ranked.")
    else:
        parts.append(
            f"Mean over {counted(evidence)} replicates ± half of its 95% interval (arms paired "
            "within a replicate; t interval of the randomised-block residual). Bold: the best "
            "ranked arm and all that do not differ from it at 5%, column by column."
        )
    parts.append("The average is over the domains' log perplexities.")
    if published:
        parts += [f"Paper: {places(published)}.", *_own_sets(evidence, published)]
        parts.append(matching(evidence, printed=True))
    reason = evidence.ablation["match"].get("unmatched")
    off = [arm.name for arm in evidence.arms if not match_check(evidence, arm.name).matched]
    if reason and off:
        parts.append(f"Not matched ({', '.join(map(shown, off))}): {reason}.")
    return " ".join(parts)


def _own_sets(evidence: Evidence, published: Tables) -> list[str]:
    """Say where the paper's average is over other test sets than ours."""
    for table in published:
        domains = printed_domains(evidence, table)
        if domains and domains != evidence.domains:
            return [f"The paper's average is over its own test sets ({', '.join(domains)})."]
    return []


def _absolute_caption(evidence: Evidence, published: Tables) -> str:
    spread = "" if evidence.replicates == 1 else " Mean ± standard deviation over replicates."
    paper = (
        " The paper's perplexities are of other corpora, another tokenizer and a larger scale: "
        "they are not comparable with ours in size."
        if published
        else ""
    )
    experts = (
        " The dense experts stand below the arms that mix them, not matched and not ranked."
        if evidence.ablation["report"].get("experts")
        else ""
    )
    return f"Lower is better.{spread}{paper}{experts}{external_caption(evidence)}"
