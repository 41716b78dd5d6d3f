"""From what stages measured to measures, claims and tables: constructed rows with known answers."""

import math
from typing import Any

import pytest

from bam_lab.report.claims import judge
from bam_lab.report.collect import collect
from bam_lab.report.contrasts import GROWTH, contrast
from bam_lab.report.evaluated_measures import blind, evaluation_cells
from bam_lab.report.evaluations import sections_of
from bam_lab.report.evidence import Evaluated, Evidence, SuiteFact
from bam_lab.report.sections import specialisations
from bam_lab.spec.claims import Claim

ARMS = ("btx", "soft", "top-2", "top-1")
TASKS = {
    "tort": ("law", 0.25),
    "lines": ("code", 0.5),
    "sums": ("math", 0.25),
    "loss": ("code", None),
}


def suite(name: str = "one", law: str = "tort") -> SuiteFact:
    names = [law if task == "tort" else task for task in TASKS]
    tasks = tuple(
        {
            "name": task,
            "title": task,
            "group": group,
            "shots": 0,
            "metric": "acc" if chance is not None else "bits_per_byte",
            "filter": "none",
            "chance": chance,
        }
        for task, (group, chance) in zip(names, TASKS.values(), strict=True)
    )
    return SuiteFact(name=name, title=name, tasks=tasks)


def answered(
    name: str, replicate: int | None, scores: dict[str, float], role: str = "arm", items: int = 200
) -> Evaluated:
    rows = tuple(
        {
            "kind": "task",
            "task": task,
            "version": "1.0",
            "metric": "bits_per_byte" if task == "loss" else "acc",
            "filter": "none",
            "shots": 0,
            "n": items,
            "value": value,
        }
        for task, value in scores.items()
    )
    answers = {
        task: {
            "digest": "d",
            "value": [float(i < round(value * items)) for i in range(items)],
            "given": [0] * items,
        }
        for task, value in scores.items()
        if task != "loss"
    }
    left_out = {task: "it has no data" for task in TASKS if task not in scores and task != "tort"}
    return Evaluated(
        kind="tasks",
        role=role,
        name=name,
        replicate=replicate,
        rows=rows,
        answers=answers,
        left_out=left_out,
        runs=("model", "tasks"),
    )


def items(count: int = 200) -> dict[str, dict[str, Any]]:
    shared = {"digest": "d", "document": list(range(count)), "wanted": [0, 1] * (count // 2)}
    return {task: shared for task in (*TASKS, "puzzles")}


SCORES = {"tort": 0.26, "lines": 0.6, "sums": 0.3, "loss": 2.0}


def of_tasks(evidence: Evidence, gains: dict[str, float], **changes: Any) -> Evidence:
    """Return the evidence with three replicates of answers; `gains` are of soft, task by task."""
    found = []
    for arm in ARMS:
        for replicate in range(3):
            noise = 0.005 * (replicate - 1)
            scores = {t: v + noise if t != "loss" else v for t, v in SCORES.items()}
            if arm == "soft":
                scores = {t: v + gains.get(t, 0.0) for t, v in scores.items()}
            found.append(answered(arm, replicate, scores))
    made = evidence.model_copy(
        update={"suites": (suite(),), "evaluations": tuple(found), "items": items(), **changes}
    )
    return with_measures(made)


def with_measures(evidence: Evidence) -> Evidence:
    return evidence.model_copy(update={"measures": tuple(evaluation_cells(evidence))})


def verdict(evidence: Evidence, *tests: dict[str, Any]) -> str:
    claim = Claim.model_validate({"text": "T", "tests": tests}, strict=False)
    return judge(evidence, {"X": claim})[0].verdict


def by(measure: str, **more: Any) -> dict[str, Any]:
    return {"test": "better", "arm": "soft", "than": "btx", "measure": measure, **more}


def test_accuracy_by_group_and_by_task(evidence_of: Any) -> None:
    evidence = of_tasks(evidence_of(replicates=3), {"tort": 0.1, "sums": 0.06})
    cells = {
        (c.measure, c.domain): c.value
        for c in evidence.measures
        if c.arm == "soft" and c.replicate == 1
    }
    assert cells["task_accuracy", "law"] == pytest.approx(0.36)
    assert cells["task_accuracy", "code"] == pytest.approx(0.6)  # a loss is no accuracy
    assert ("accuracy_by_task", "loss") not in cells
    assert cells["accuracy_by_task", "sums"] == pytest.approx(0.36)
    assert verdict(evidence, by("task_accuracy")) == "holds"
    assert verdict(evidence, by("task_accuracy", **{"in": "every"})) != "holds"
    assert verdict(evidence, by("task_accuracy", **{"in": "law"})) == "holds"
    assert verdict(evidence, by("task_accuracy", **{"in": "art"})) == "out of scope"


def test_a_gain_of_two_tasks_is_not_broad(evidence_of: Any) -> None:
    broad = {"test": "broad", "arm": "soft", "than": "btx", "without": 1}
    narrow = of_tasks(evidence_of(replicates=3), {"tort": 0.3})
    assert verdict(narrow, by("accuracy_by_task")) == "holds"  # on the average
    assert verdict(narrow, broad) == "no difference"
    wide = of_tasks(evidence_of(replicates=3), {"tort": 0.3, "sums": 0.1, "lines": 0.1})
    assert verdict(wide, broad) == "holds"
    assert verdict(wide, broad | {"without": 3}) == "out of scope"


def test_two_suites_are_judged_apart(evidence_of: Any) -> None:
    """Law as one test has it can be better, and law as another has it no better."""
    evidence = of_tasks(evidence_of(replicates=3), {"tort": 0.3})
    evidence = evidence.model_copy(update={"suites": (suite(), suite("two", "puzzles"))})
    more = []
    for one in evidence.evaluations:
        puzzles = dict(next(row for row in one.rows if row["task"] == "lines"))
        puzzles |= {"task": "puzzles", "value": 0.3}
        more.append(one.model_copy(update={"rows": (*one.rows, puzzles)}))
    evidence = with_measures(evidence.model_copy(update={"evaluations": tuple(more)}))
    places = {c.domain for c in evidence.measures if c.measure == "task_accuracy"}
    assert {"law@one", "law@two", "code@one", "code@two"} <= places
    first = contrast(evidence, {"soft": 1.0, "btx": -1.0}, "task_accuracy", "average@one")
    second = contrast(evidence, {"soft": 1.0, "btx": -1.0}, "task_accuracy", "average@two")
    assert first.mean == pytest.approx(-0.1) and second.mean == pytest.approx(0.0)
    assert verdict(evidence, by("task_accuracy")) == "no difference"  # under both is asked


def test_a_task_without_a_score_says_why(evidence_of: Any) -> None:
    evidence = of_tasks(evidence_of(replicates=3), {})
    bare = [one for one in evidence.evaluations if one.name != "soft"]
    bare += [answered("soft", r, {"tort": 0.3, "lines": 0.6, "loss": 2.0}) for r in range(3)]
    evidence = with_measures(evidence.model_copy(update={"evaluations": tuple(bare)}))
    why = {c.domain: c.missing for c in evidence.measures if c.arm == "soft"}
    assert why["math"] == "sums: it has no data" and why["law"] == ""
    assert verdict(evidence, by("task_accuracy")) == "not measured"


def test_the_experts_are_compared_at_home_on_tasks(evidence_of: Any) -> None:
    evidence = of_tasks(evidence_of(replicates=3), {})
    dense = [answered("seed_model", None, SCORES, "seed_model")]
    for name, task in (("code", "lines"), ("law", "tort"), ("math", "sums")):
        for replicate in range(3):
            scores = SCORES | {task: SCORES[task] + 0.1 + 0.001 * replicate}
            dense.append(answered(name, replicate, scores, "expert"))
    known = evidence.model_copy(update={"evaluations": (*evidence.evaluations, *dense)})
    diagonal = {"test": "diagonal", "measure": "task_accuracy"}
    assert verdict(known, diagonal) == "holds"
    wrong = [one for one in known.evaluations if (one.role, one.name) != ("expert", "law")]
    better = [answered("law", r, SCORES, "expert") for r in range(3)]
    known = known.model_copy(update={"evaluations": (*wrong, *better)})
    assert verdict(known, diagonal) != "holds"
    assert verdict(evidence, diagonal) == "not measured"


def probed(about: str, name: str, replicate: int, rows: list[dict[str, Any]]) -> Evaluated:
    return Evaluated(
        kind="probe", about=about, role="arm", name=name, replicate=replicate, rows=tuple(rows)
    )


def of_needles(evidence: Evidence, shares: dict[str, tuple[float, float]]) -> Evidence:
    found = [
        probed(
            "needles",
            arm,
            replicate,
            [
                {
                    "task": "needle",
                    "metric": "accuracy",
                    "length": length,
                    "n": 100,
                    "value": share + 0.001 * replicate,
                    "chance": 0.25,
                }
                for length, share in zip((64, 96), shares.get(arm, (0.9, 0.9)), strict=True)
            ],
        )
        for arm in ARMS
        for replicate in range(3)
    ]
    return with_measures(evidence.model_copy(update={"evaluations": tuple(found)}))


def test_needles_say_nothing_until_the_dense_model_finds_them(evidence_of: Any) -> None:
    evidence = of_needles(evidence_of(replicates=3), {"btx": (0.27, 0.27)})
    assert "finds 27% of the needles" in blind(evidence)  # no arm is dense: the baseline
    cell = next(c for c in evidence.measures if c.measure == "needle_accuracy")
    assert cell.value is None and "too little to tell" in cell.missing
    assert verdict(evidence, by("needle_accuracy")) == "not measured"
    assert not blind(of_needles(evidence_of(replicates=3), {}))


def test_a_lead_that_widens_with_the_prompt(evidence_of: Any) -> None:
    widens = {"test": "widens", "arm": "btx", "than": "soft", "measure": "needle_accuracy"}
    falls = of_needles(evidence_of(replicates=3), {"soft": (0.9, 0.6)})
    growth = contrast(falls, {"btx": 1.0, "soft": -1.0}, "needle_accuracy", GROWTH)
    assert growth.mean == pytest.approx(-0.3)  # turned: lower is better
    assert verdict(falls, widens) == "holds"
    lower = of_needles(evidence_of(replicates=3), {"soft": (0.6, 0.6)})
    assert verdict(lower, widens) == "no difference"
    assert verdict(lower, widens | {"arm": "soft", "than": "btx"}) == "no difference"


def test_completions_are_read_at_the_trained_length_by_the_prompt(evidence_of: Any) -> None:
    common = {"task": "completion", "domain": "*", "n": 10, "trained_segment_len": 8}
    rows = [
        common | {"metric": m, "rule": r, "segment_len": s, "prompt_len": p, "value": v}
        for m, r, s, p, v in (
            ("perplexity", "prompt", 8, 32, 10.0),
            ("perplexity", "prompt", 8, 16, 12.0),
            ("perplexity", "segment", 8, 32, 9.0),
            ("perplexity", "prompt", 16, 32, 99.0),
        )
    ]
    rows.append(common | {"metric": "mismatch", "segment_len": 8, "prompt_len": 32, "value": 0.1})
    evidence = evidence_of(replicates=1)
    evidence = evidence.model_copy(update={"evaluations": (probed("completion", "soft", 0, rows),)})
    found = [(c.measure, c.domain, c.value) for c in evaluation_cells(evidence)]
    assert found == [
        ("completion_perplexity", "16-tokens", 12.0),
        ("completion_perplexity", "32-tokens", 10.0),
        ("prompt_mismatch", "32-tokens", 0.1),
    ]
    why = "it has no rule of inference"
    other = probed("completion", "btx", 0, []).model_copy(update={"left_out": {"completion": why}})
    both = evidence.model_copy(update={"evaluations": (*evidence.evaluations, other)})
    lacking = [(c.domain, c.missing) for c in evaluation_cells(both) if c.arm == "btx"]
    assert lacking == [("16-tokens", why), ("32-tokens", why), ("32-tokens", why)]


def timed(evidence: Evidence, seconds: dict[str, float]) -> Evidence:
    turns = tuple(
        {
            "arm": arm,
            "batch": batch,
            "computed": "apart",
            "seconds": [[0.1 * mood, base * mood * batch - 0.1 * mood] for mood in (1.0, 1.5, 1.2)],
        }
        for arm, base in seconds.items()
        for batch in (1, 8)
    )
    found = Evaluated(kind="latency", turns=turns, runs=("latency-1",))
    return with_measures(evidence.model_copy(update={"evaluations": (found,)}))


def test_latency_is_paired_by_round_and_bound_by_arithmetic(evidence_of: Any) -> None:
    evidence = timed(evidence_of(replicates=1), {"btx": 1.0, "soft": 1.2})
    gap = contrast(evidence, {"soft": 1.0, "btx": -1.0}, "latency", "", better=False)
    assert gap.mean == pytest.approx(math.log(1.2)) and gap.judged  # rounds, not replicates
    ratio = {"test": "ratio", "arm": "soft", "than": "btx", "measure": "latency"}
    assert verdict(evidence, ratio | {"at_most": 1.3}) == "holds"
    assert verdict(evidence, ratio | {"at_most": 1.1}) == "contradicted"
    flops = contrast(evidence, {"soft": 1.0, "btx": -1.0}, "inference_flops", "", better=False)
    expected = "holds" if flops.mean > math.log(1.2) else "contradicted"
    assert verdict(evidence, ratio | {"at_most_as": "inference_flops"}) == expected


def test_re_routing_adds_nothing_where_nobody_asked(evidence_of: Any) -> None:
    evidence = of_tasks(evidence_of(replicates=3), {})
    assert not [c for c in evidence.measures if c.measure == "rerouting_gain"]
    asked = evidence.ablation | {"evaluate": {"rerouted": True}}
    again = [
        answered("soft", r, {t: v + 0.05 for t, v in SCORES.items()}).model_copy(
            update={"about": "re-routed"}
        )
        for r in range(3)
    ]
    evidence = evidence.model_copy(
        update={"ablation": asked, "evaluations": (*evidence.evaluations, *again)}
    )
    found = {
        (c.arm, c.domain): c.value
        for c in evaluation_cells(evidence)
        if c.measure == "rerouting_gain" and c.replicate == 1
    }
    assert found["soft", "law"] == pytest.approx(0.05)
    assert found["btx", "law"] == 0.0


def test_the_page_has_a_section_for_each_suite_and_setting(evidence_of: Any) -> None:
    evidence = of_tasks(evidence_of(replicates=3), {"tort": 0.3})
    (section,) = sections_of(evidence)
    labels = [table.label for table in section.tables]
    assert labels[:3] == ["task-groups", "tasks", "task-gains"]
    scores = section.tables[1]
    row = next(row for row in scores.rows if row.head == "soft")
    assert row.values[0].text.startswith("56.0 ±")
    sums = next(i for i, column in enumerate(scores.columns) if column.name == "sums")
    assert row.values[sums].note  # 30% of 200 items is not above 25%
    gains = section.tables[2]
    tort = next(row for row in gains.rows if row.head == "tort")
    group = [c.group for c in gains.columns].index("soft")
    assert tort.values[group].bold and tort.values[group].number == pytest.approx(30.0)
    assert sections_of(evidence_of(replicates=3)) == ()


def test_the_best_of_the_dense_models_stands_below_them(five: Any) -> None:
    evidence = collect(*five)
    (found,) = specialisations(evidence, ())
    *models, best = found.table.rows
    assert best.head == "best of them"
    for place in range(len(found.table.columns)):
        assert best.values[place].number == min(row.values[place].number for row in models)
    told = next(line for line in found.lines if line.startswith("soft against the best"))

    def mean(role: str, name: str) -> float:
        cells = [c for c in evidence.cells if (c.role, c.name, c.domain) == (role, name, "code")]
        return sum(c.nll for c in cells) / len(cells)

    change = 100 * (math.exp(mean("arm", "soft") - mean("expert", "code")) - 1)
    assert f"code {change:+.1f}%".replace("-", "−") in told
