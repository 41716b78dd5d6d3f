"""Probes in the report: completions by prompt length, long text, needles, first segments.

Each table has a row an arm; a cell is the mean over replicates of one kind of row that the probe
stages wrote (`evaluate/probes/rows.py`), with its standard deviation.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bam_lab.report.evaluated_measures import blind
from bam_lab.report.evidence import Evaluated, Evidence
from bam_lab.report.table import Column, Row, Table, Value, hoist, missing, nothing
from bam_lab.report.tables import arms_in_order, mark_of

Wanted = Mapping[str, Any]
Tables = list[Table]


def probe_tables(evidence: Evidence) -> Tables:
    """Return the tables of every probe that was asked of the arms of one setting."""
    makers: dict[str, Callable[[Evidence], Tables]] = {
        "completion": _completion,
        "distance": _distance,
        "needles": _needles,
        "first_segment": _first_segment,
        "positions": _positions,
        "sliding": _sliding,
    }
    asked = dict.fromkeys(one.about for one in evidence.evaluations if one.kind == "probe")
    return [table for about in asked for table in makers[about](evidence)]


def probe_lines(evidence: Evidence) -> list[str]:
    """Return what arms could not be asked, and why."""
    return [
        f"{name}, {what}: {why}"
        for (name, what), why in {
            (one.name, what): why
            for one in evidence.evaluations
            if one.kind == "probe"
            for what, why in one.left_out.items()
        }.items()
    ]


def _completion(evidence: Evidence) -> Tables:
    rows = _rows(evidence, "completion")
    common = {"domain": "*"}
    columns = []
    for prompt in _values(rows, "prompt_len"):
        at = common | {"prompt_len": prompt}
        group = f"after {prompt} tokens"
        columns += [
            (Column("by prompt", group), at | {"metric": "perplexity", "rule": "prompt"}, 2),
            (Column("re-routed", group), at | {"metric": "perplexity", "rule": "segment"}, 2),
            (Column("mismatch", group), at | {"metric": "mismatch"}, 4),
        ]
    length = _values(rows, "completion_len")[:1]
    tables = [
        _table(
            evidence,
            "completion",
            _own_segments,
            columns,
            "completions",
            f"Completions of {length[0] if length else '?'} tokens",
            "Test perplexity of the true continuation, average of domains. By prompt: methods that "
            "route segments decide once, by the prompt, as in generation; re-routed: at every "
            "segment, as in training. Mismatch: the loss of the first less that of the second, "
            "nats a token; 0 for methods that route no segments. The same tokens after every "
            "prompt.",
        )
    ]
    lengths = _values(rows, "segment_len")
    if any(not _own_segments(row) for row in rows):
        longest = max(_values(rows, "prompt_len"))
        at = common | {"prompt_len": longest, "metric": "perplexity", "rule": "prompt"}
        grid = [(Column(str(n), "evaluated by"), at | {"segment_len": n}, 2) for n in lengths]
        tables.append(
            _table(
                evidence,
                "completion",
                lambda row: True,
                grid,
                "completion-grid",
                "Completions by trained and evaluated segment length",
                f"Test perplexity after {longest} tokens, routed by the prompt. A row has the "
                "segment length that the arm was trained with; no weight depends on it.",
            )
        )
    return tables


def _distance(evidence: Evidence) -> Tables:
    all_rows = _rows(evidence, "distance")
    rows = [row for row in all_rows if row["task"] == "long"]
    bins = _values(rows, "distance")
    own = {"task": "long", "rule": "prompt", "metric": "perplexity"}
    names = [(Column(f"+{start}"), own | {"distance": start}, 2) for start in bins]
    tables = []
    for switched in (False, True):
        kept = _switched if switched else _same
        if not any(kept(row) for row in rows):
            continue
        what = "after another domain's prompt" if switched else "after their own prompt"
        label = "distance-switched" if switched else "distance"
        tables.append(
            _table(
                evidence,
                "distance",
                kept,
                names,
                label,
                f"Long continuations {what}",
                "Test perplexity by distance from the prompt, in tokens, average of domains; "
                "methods that route segments keep the prompt's routing.",
            )
        )
        gaps = {"task": "long", "metric": "mismatch"}
        columns = [(Column(f"+{start}"), gaps | {"distance": start}, 4) for start in bins]
        tables.append(
            _table(
                evidence,
                "distance",
                kept,
                columns,
                f"{label}-mismatch",
                f"Prompt-only routing over re-routing, {what}",
                "Nats a token by distance from the prompt.",
            )
        )
    for task, whose in (("drift", "true"), ("drift-own", "the model's own")):
        if not (starts := _values([r for r in all_rows if r["task"] == task], "distance")):
            continue
        at = {"task": task, "layer": "*", "router": "*"}
        tables.append(
            _table(
                evidence,
                "distance",
                _same,
                [(Column(f"+{start}"), at | {"distance": start}, 3) for start in starts],
                task,
                f"Drift of expert weights, {whose} continuations",
                "Total variation distance between the experts' shares there and in the prompt, "
                "mean of routers and domains: 0 the same, 1 no expert in common.",
            )
        )
    return tables


def _needles(evidence: Evidence) -> Tables:
    rows = [row for row in _rows(evidence, "needles") if row["metric"] == "accuracy"]
    tables = []
    why = blind(evidence)
    for task in _texts(rows, "task"):
        own = [row for row in rows if row["task"] == task]
        lengths, depths = _values(own, "length"), _values(own, "depth")
        chance = next((row["chance"] for row in own if "chance" in row), None)
        guessing = "" if chance is None else f"; guessing finds {chance:.0%}"
        columns = []
        for length in lengths:
            at = {"task": task, "metric": "accuracy", "length": length}
            group = f"{length} tokens"
            columns.append((Column("all", group), at | {"depth": None}, 3))
            columns += [(Column(f"{d:g}", group), at | {"depth": d}, 3) for d in depths]
        caption = (
            "Share of needles whose right answer is the likeliest of the candidates, by length of "
            f"the prompt and depth of the needle (0 its start, 1 its end){guessing}."
        )
        if why:
            caption = f"Not measured: {why}. The shares are shown all the same. {caption}"
        title = f"Needles: {task}"
        tables.append(
            _table(
                evidence, "needles", lambda row: True, columns, f"needles-{task}", title, caption
            )
        )
    return tables


def _first_segment(evidence: Evidence) -> Tables:
    rows = _rows(evidence, "first_segment")
    columns = [
        (Column(part, domain), {"domain": domain, "part": part, "metric": "perplexity"}, 2)
        for domain in _texts(rows, "domain")
        for part in ("first", "later")
    ]
    size = _values(rows, "segment_len")[:1]
    return [
        _table(
            evidence,
            "first_segment",
            lambda row: True,
            columns,
            "first-segment",
            "First segments apart",
            f"Test perplexity of the first {size[0] if size else '?'} tokens of every window, and "
            "of all later ones.",
        )
    ]


def _positions(evidence: Evidence) -> Tables:
    at = {"domain": "*", "metric": "gradient_norm"}
    columns = [(Column(part), at | {"part": part}, 6) for part in ("first", "later")]
    return [
        _table(
            evidence,
            "positions",
            lambda row: True,
            columns,
            "positions",
            "What the loss teaches learned positions",
            "Mean norm of the gradient of one position's embedding, of the first segment and of "
            "later ones.",
        )
    ]


def _sliding(evidence: Evidence) -> Tables:
    rows = _rows(evidence, "sliding")
    domains = _texts(rows, "domain")
    columns = [
        (Column("all" if d == "*" else d), {"domain": d, "metric": "perplexity"}, 2)
        for d in domains
    ]
    again = _values(rows, "prompt_len")[:1]
    return [
        _table(
            evidence,
            "sliding",
            lambda row: True,
            columns,
            "sliding",
            "Held-out text by sliding windows",
            f"Test perplexity; every token after {again[0] if again else '?'} tokens of its "
            "document or more, or all that there are before it; methods that route segments decide "
            "again at every segment.",
        )
    ]


def _table(
    evidence: Evidence,
    about: str,
    kept: Callable[[Wanted], bool],
    columns: Sequence[tuple[Column, Wanted, int]],
    label: str,
    title: str,
    caption: str,
) -> Table:
    rows = []
    for arm in arms_in_order(evidence):
        own = [one for one in evidence.evaluations if (one.about, one.name) == (about, arm)]
        values = tuple(_value(own, kept, wanted, digits) for _, wanted, digits in columns)
        rows.append(hoist(Row(arm, values, mark_of(evidence, arm))))
    if evidence.replicates > 1:
        caption += " Mean ± standard deviation over replicates."
    return Table(
        label, title, caption, "arm", tuple(column for column, _, _ in columns), tuple(rows)
    )


def _value(
    own: Sequence[Evaluated], kept: Callable[[Wanted], bool], wanted: Wanted, digits: int
) -> Value:
    """Return the mean over replicates of the mean of the rows that are wanted."""
    means = []
    for one in own:
        found = [
            row["value"]
            for row in one.rows
            if kept(row) and all(row.get(key) == value for key, value in wanted.items())
        ]
        if found:
            means.append(math.fsum(found) / len(found))
    if not means:
        why = next((one.missing for one in own if one.missing), "")
        why = why or next((text for one in own for text in one.left_out.values()), "")
        return missing(why) if why else nothing("no such part")
    mean = math.fsum(means) / len(means)
    text = f"{mean:.{digits}f}"
    if len(means) > 1:
        spread = math.sqrt(math.fsum((m - mean) ** 2 for m in means) / (len(means) - 1))
        text += f" ± {spread:.{digits}f}"
    return Value(text, mean, runs=tuple(dict.fromkeys(run for one in own for run in one.runs)))


def _rows(evidence: Evidence, about: str) -> list[dict[str, Any]]:
    return [row for one in evidence.evaluations if one.about == about for row in one.rows]


def _values(rows: Sequence[Wanted], key: str) -> list[Any]:
    return sorted({row[key] for row in rows if key in row})


def _texts(rows: Sequence[Wanted], key: str) -> list[str]:
    return list(dict.fromkeys(row[key] for row in rows))


def _own_segments(row: Wanted) -> bool:
    return bool(row.get("segment_len") == row.get("trained_segment_len"))


def _same(row: Wanted) -> bool:
    return bool(row.get("domain") == row.get("prompt_domain"))


def _switched(row: Wanted) -> bool:
    return not _same(row)
