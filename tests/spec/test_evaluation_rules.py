"""`evaluate:` of an ablation: what may stand there, and what has no effect."""

from pathlib import Path

import pytest

from bam_lab.spec.evaluation_rules import segment_lens_of
from bam_lab.spec.load import load_ablation, read_ablation

FIXTURE = Path("tests/fixtures/evaluation.yaml")
HERE = (FIXTURE.parent / "eval").resolve()


def problems(*overrides: str) -> str:
    return "\n".join(read_ablation(str(FIXTURE), overrides=overrides)[1])


def test_the_fixture_asks_for_everything() -> None:
    asked = load_ablation(str(FIXTURE)).ablation.evaluate
    kinds = [probe.probe for probe in asked.probes]
    assert kinds == [
        "completion",
        "distance",
        "needles",
        "first_segment",
        "positions",
        "sliding",
    ]
    assert asked.suites and asked.routing and asked.latency and asked.experts and asked.rerouted


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("evaluate.suites=[defualt]", "must be a known suite, got 'defualt'. Did you mean `defa"),
        ("evaluate.suites=[eval/none.yaml]", "is no suite: "),
        ("evaluate.suites=[default, default]", "must stand once, got 'default' again"),
        ("evaluate.suites=[]", "experts has no effect without suites"),
        ("evaluate.suites=[]", "must not ask for task_accuracy where `evaluate:` has no suites"),
        ("evaluate.routing=false", "must not ask for mutual_information where `evaluate:` has no r"),
        ("evaluate.latency=null", "must not ask for latency where `evaluate:` has no latency"),
        ("evaluate.probes=[]", "must not ask for needle_accuracy where `evaluate:` has no probe"),
        ("evaluate.probes=[{probe: sliding, context: 0.5}, {probe: sliding, context: 0.2}]",
         "must be another probe than those before, got 'sliding' again"),
        ("evaluate.probes=[{probe: sliding, context: 0.001}]", "must be a token or more of the"),
        ("evaluate.probes=[{probe: sliding, context: 1.0}]", "must be < 1"),
        ("evaluate.probes=[{probe: slidng, context: 0.1}]", "'sliding'"),
        ("evaluate.probes=[{probe: completion, prompts: [0.5, 0.9], completion: 0.25}]",
         "must leave room for the completion in the context, got 0.9 and 0.25"),
        ("evaluate.probes=[{probe: completion, prompts: [0.5], completion: 0.25, across: true}]",
         "has no effect where fewer than two segment lengths are trained, got [8]"),
        ("evaluate.probes=[{probe: positions, segment_len: 32}]", "must be below the model's 32"),
        ("evaluate.latency={new: 1}", "must be >= 2"),
        ("arms.lory={method: sparse_upcycling, num_experts: 2, layers: all, ffn_router: {score: "
         "softmax, select: top_k, top_k: 1, renormalize: false}}",
         "rerouted has no effect without suites and an arm that routes segments"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(change: str, told: str) -> None:
    assert told in problems(change)


def test_first_segments_need_one_length_among_the_arms() -> None:
    other = "arms.longer={method: lory, segment_len: 16, first_segment: uniform, num_experts: 2}"
    assert "must be given where the arms have not one segment length, got [8, 16]" in problems(other)
    methods = load_ablation(str(FIXTURE)).arms.values()
    assert segment_lens_of(methods) == (8,)


def test_a_suite_about_another_corpus_is_refused(tmp_path: Path) -> None:
    suite = written(tmp_path, "one")
    task = (FIXTURE.parent / "eval" / "fixture-law" / "task.yaml").read_text()
    (tmp_path / "fixture-law").mkdir()
    (tmp_path / "fixture-law" / "task.yaml").write_text(task.replace("domain: law", "domain: art"))
    suite.write_text(suite.read_text().replace(f"{HERE}/fixture-law", "fixture-law"))
    told = problems(f"evaluate.suites=[{suite}]")
    assert "must read domains of the corpus (general, code, law, math), fixture-law reads" in told


def test_one_task_has_one_number_of_shots(tmp_path: Path) -> None:
    one, two = written(tmp_path, "one"), written(tmp_path, "two")
    assert not problems(f"evaluate.suites=[{one}, {two}]")
    for path, shots in ((one, 0), (two, 2)):
        text = "schema: 1\nname: {}\ntitle: T\ntasks: [{{task: gsm8k, shots: {}, group: g}}]\n"
        path.write_text(text.format(path.stem, shots))
    told = problems(f"evaluate.suites=[{one}, {two}]")
    assert "must ask gsm8k with as many shots as" in told and "does (0), got 2" in told


def written(folder: Path, name: str) -> Path:
    """Write the fixture's suite under another name, its tasks by their whole paths."""
    text = (HERE / "fixture-suite.yaml").read_text()
    text = text.replace("name: fixture-suite", f"name: {name}")
    for task in ("fixture-law", "fixture-words"):
        text = text.replace(f"{task}/", f"{HERE}/{task}/")
    path = folder / f"{name}.yaml"
    path.write_text(text)
    return path
