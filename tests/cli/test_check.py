"""`check`: every kind of file, every problem, exit code 2, never a traceback."""

from pathlib import Path

import pytest

from bam_lab.cli.kinds import problems_of
from tests.cli.command import bam_lab

GOOD = "ablations/bam/bam-attention-routing.yaml"


def test_shipped_files_are_fine():
    done = bam_lab("check")
    assert done.code == 0
    assert "files are fine" in done.out


def test_one_file_and_a_folder():
    assert "1 file is fine" in bam_lab("check", GOOD).out
    assert bam_lab("check", "configs", "ablations", GOOD).code == 0


def test_tasks_and_suites_by_name_file_and_folder():
    assert "1 file is fine" in bam_lab("check", "eval/suites/lory.yaml").out
    assert "1 file is fine" in bam_lab("check", "eval/tasks/tort-law").out
    assert "1 file is fine" in bam_lab("check", "eval/lm-eval.yaml").out
    assert "2 files are fine" in bam_lab("check", "tort-law", "law-tort").out
    count = len(list(Path("eval").rglob("*.yaml")))
    assert f"{count} files are fine" in bam_lab("check", "eval").out


def copied(path, to, *changes):
    text = Path(path).read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    to.parent.mkdir(exist_ok=True)
    to.write_text(text)
    return to


def test_all_problems_of_tasks_and_suites_at_once(tmp_path):
    task = copied(
        "eval/tasks/tort-law/task.yaml",
        tmp_path / "tort-law" / "task.yaml",
        ("name: tort-law", "name: tort"),
        ("chance: 0.25", "chance: 0.5"),
        ("shots: 0", "shots: 9"),
    )
    suite = copied(
        "eval/suites/btx.yaml",
        tmp_path / "suites" / "btx.yaml",
        ("offline: default", "offline: defualt"),
        ("arc_easy", "arc_eazy"),
        ("tasks:\n", "tasks:\n  - {task: ../tort-law/task.yaml, shots: 0, group: law}\n"),
    )
    harness = copied(
        "eval/lm-eval.yaml", tmp_path / "lm.yaml", ("    subsets: [main]", "    sets: 1")
    )
    done = bam_lab("check", str(tmp_path))
    assert done.code == 2
    for told in (
        f"{task}:3:1: name must be its folder's name 'tort-law', got 'tort'",
        f"{task}:9:1: chance must be 0.25, what guessing gives here, got 0.5",
        f"{task}:10:1: shots must be at most examples (5), got 9",
        f"{suite}:6:1: offline must be a known suite, got 'defualt'. Did you mean `default`?",
        f"{suite}:15:6: tasks.7.task must be a known task, got 'arc_eazy'. Did you mean `arc_e",
        f"{harness}:13:5: tasks.gsm8k.sets must be a known key",
    ):
        assert told in done.err
    assert "6 problems" in done.err  # those of a task that a suite names stand once


def test_all_problems_of_all_files_at_once(tmp_path):
    first, second = tmp_path / "one.yaml", tmp_path / "two.yaml"
    first.write_text("schema: 1\nvocab_size: 10\ndim: x\nnum_layer: 2\n")
    second.write_text("schema: 1\nphases: 3\n")
    done = bam_lab("check", str(tmp_path))
    assert done.code == 2
    assert f"{first}:3:1: dim must be" in done.err
    assert "num_layers" in done.err
    assert f"{second}:2:1: phases must be a mapping" in done.err
    assert "Traceback" not in done.err
    assert done.out == ""


BAD = {
    "empty": (b"", "must not be empty"),
    "binary": (b"\x00\xff\x00", "binary"),
    "list": (b"- a\n- b\n", "must hold a mapping, got a list"),
    "tag": (b"schema: !!python/object:os.system x\n", "tag"),
    "alias": (b"a: &x [1, 2]\nb: *x\n", "alias"),
    "duplicate": (b"schema: 1\nschema: 1\n", "duplicate key"),
    "syntax": (b"a: [1,\n", "valid YAML"),
    "unknown": (b"schema: 1\nfoo: 2\n", "must have a key that says what it is, got schema, foo"),
    "future": (b"schema: 2\nvocab_size: 10\n", "schema must be 1, got 2"),
}


@pytest.mark.parametrize(("content", "message"), BAD.values(), ids=BAD)
def test_bad_files(content, message, tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    done = bam_lab("check", str(path))
    assert done.code == 2
    assert message in done.err
    assert str(path) in done.err
    assert "Traceback" not in done.err


def test_missing_file_and_folder_without_specs(tmp_path):
    assert "must be readable, got: no such file" in bam_lab("check", str(tmp_path / "x.yaml")).err
    done = bam_lab("check", str(tmp_path))
    assert done.code == 2
    assert "must hold .yaml files" in done.err


def test_all_that_is_not_there_is_told_at_once(tmp_path):
    (tmp_path / "empty").mkdir()
    done = bam_lab("check", "bam-perplexty", "nowhere.yaml", "", str(tmp_path / "empty"))
    assert done.code == 2
    assert "bam-perplexty: must be an ablation's id, alias or path. Did you mean" in done.err
    assert "nowhere.yaml: the file must be readable" in done.err
    assert "an empty name: must be an ablation's id" in done.err
    assert "must hold .yaml files" in done.err


ALL_AT_ONCE = (
    ("claims: [C1", "claims: [C999, C16, C1", "claims.0 must be an id of ablations/claims.yaml"),
    ("", "", "claims.1 must be judged by this ablation: it needs an arm 'lory-16'"),
    ("columns: [", "columns: [measure/nothing, ", "columns.0 must be heldout/*/perplexity or meas"),
    (
        "published: bam",
        "published: lory-table-2 # bam",
        "lory-table-2 has a row of none of the arms",
    ),
    (
        "arms:\n",
        "arms:\n  again: {method: btx}\n",
        "must differ from arm 'again', got the same run",
    ),
    (
        "match: {on: flops, phase: mixture}",
        "match: {on: params-total, by: {kv-sharing: num_experts}}",
        "got 1.0658 of it with num_experts 4, the nearest",
    ),
    (
        "recipe: bam\n",
        "recipe: bam\nat: {nano: {scale.phases.mixture.tokens: 0.1x}}\n",
        "must give 200 optimizer steps or more, got 100",
    ),
)


def test_all_inconsistencies_of_one_file_are_told_at_once(tmp_path):
    path = tmp_path / "bam-perplexity.yaml"
    text = Path("ablations/bam/bam-perplexity.yaml").read_text()
    for old, new, _ in ALL_AT_ONCE:
        assert old in text
        text = text.replace(old, new, 1) if old else text
    path.write_text(text)
    told = "\n".join(problems_of(path))
    for _, _, message in ALL_AT_ONCE:
        assert message in told
    lines = [line for line in told.split("\n") if "(at --scale" not in line]
    assert all("bam-perplexity.yaml:" in line for line in lines)  # each with its line


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("recipe: bam\n", "recipe: bam\nat: {bam-2b: {common.z_los: 1}}\n", "common.z_los must be"),
        ("bam-2b: bam-table-2", "bam-2b: lory-table-2", "report.published_at.bam-2b must name tab"),
        ("bam-2b: bam-table-2", "bam-2b: []", "published_at.bam-2b must name a table: without one"),
    ],
)
def test_what_is_said_of_another_scale_is_checked_too(tmp_path, old, new, message):
    path = tmp_path / "bam-perplexity.yaml"
    text = Path("ablations/bam/bam-perplexity.yaml").read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    assert any(message in line for line in problems_of(path))


def test_what_only_the_stages_show_is_found(tmp_path):
    """Two arms that a match has made the same run, though each says it otherwise."""
    path = tmp_path / "bam-perplexity.yaml"
    text = Path("ablations/bam/bam-perplexity.yaml").read_text()
    text = text.replace("arms:\n", "arms:\n  again: {method: btx}\n")
    path.write_text(text.replace("phase: mixture}", "phase: mixture, by: {again: batch}}"))
    (problem,) = problems_of(path)
    assert "bam-perplexity.yaml" in problem and "got the same run twice" in problem


def test_an_ablation_is_checked_with_its_match(tmp_path):
    text = Path(GOOD).read_text().replace("top_k: 2", "top_k: 9")
    path = tmp_path / "bam-attention-routing.yaml"
    path.write_text(text)
    problems = problems_of(path)
    assert len(problems) == 2
    assert all("must be at most the number of experts 4, got 9" in text for text in problems)


def test_an_ablation_in_the_current_folder_needs_no_path(tmp_path, monkeypatch):
    path = tmp_path / "bam-attention-routing.yaml"
    path.write_text(Path(GOOD).read_text())
    monkeypatch.chdir(tmp_path)
    assert bam_lab("check", path.name).code == 0
