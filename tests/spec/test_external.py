"""Scores files of checkpoints that are no arms: read beside the ablation, all problems at once."""

import json
from pathlib import Path

import pytest

from bam_lab.errors import SpecError
from bam_lab.record.store import Store
from bam_lab.run.graph import build_graph
from bam_lab.run.index import write_index
from bam_lab.spec.load import load_ablation

FIXTURES = Path(__file__).parents[1] / "fixtures"
SCORES = """
schema: 1
id: pythia-70m
title: Pythia 70M
checkpoint:
  source: https://huggingface.co/EleutherAI/pythia-70m
  revision: a39f36b100fe8a5377810d56c3f4789b9c53ac42
  sha256: "{digest}"
params_total: 70426624
params_active: 70426624
training_tokens: 299892736000
corpus: "{digest}"
context: 32
scored_by: bam-lab 0.5, float32
scores:
  - {{domain: law, nats: 1200.5, tokens: 400, bytes: 1900}}
"""


@pytest.fixture
def ablation(tmp_path: Path) -> Path:
    """Return the fixture's ablation in a folder of its own, naming `pythia.yaml` beside it."""
    for name in ("ablation", "scale", "model", "corpus"):
        (tmp_path / f"{name}.yaml").write_text((FIXTURES / f"{name}.yaml").read_text())
    (tmp_path / "corpus").symlink_to(FIXTURES / "corpus")
    path = tmp_path / "ablation.yaml"
    text = path.read_text()
    assert "columns: [heldout/*/perplexity]" in text
    path.write_text(
        text.replace(
            "columns: [heldout/*/perplexity]",
            "columns: [heldout/*/perplexity]\n  external: [pythia.yaml]",
        )
    )
    write(tmp_path)
    return path


def write(folder: Path, old: str = "", new: str = "", name: str = "pythia") -> None:
    text = SCORES.format(digest="ab" * 32)
    assert old in text
    (folder / f"{name}.yaml").write_text(text.replace(old, new) if old else text)


def test_scores_are_read_and_travel_with_the_index(ablation: Path, tmp_path: Path) -> None:
    resolved = load_ablation(str(ablation))
    assert [one.id for one in resolved.external] == ["pythia-70m"]
    assert resolved.external[0].scores[0].nats == 1200.5
    graph = build_graph(resolved, 1, "digest")
    without = load_ablation(str(FIXTURES / "ablation.yaml"))
    assert set(graph.stages) == set(build_graph(without, 1, "digest").stages)  # nothing to run
    index = json.loads(write_index(resolved, graph, Store(tmp_path / "store"), 1).read_text())
    assert index["external"][0]["checkpoint"]["revision"].startswith("a39f36b")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("id: pythia-70m", "id: btx", r"report\.external must have a name of its own.* 'btx'"),
        ("domain: law", "domain: laws", r"scores on domains of the corpus .* got 'laws' in pythia"),
        ("nats: 1200.5", "nats: -1", r"pythia\.yaml:\d+:\d+: scores\.0\.nats must be"),
        ("abab", "xyzw", r"checkpoint\.sha256 must match"),
        ("training_tokens: 299892736000\n", "", r"training_tokens must be given"),
        (
            "scores:\n",
            "scores:\n  - {domain: law, nats: 1.0, tokens: 1, bytes: 1}\n",
            r"must have each domain once, got 'law' again",
        ),
    ],
)
def test_bad_scores_are_found_at_check(ablation: Path, old: str, new: str, message: str) -> None:
    write(ablation.parent, old, new)
    with pytest.raises(SpecError, match=message):
        load_ablation(str(ablation))


def test_files_that_cannot_be_are_named(ablation: Path) -> None:
    (ablation.parent / "pythia.yaml").unlink()
    with pytest.raises(SpecError, match=r"pythia\.yaml: the file must be readable"):
        load_ablation(str(ablation))
    ablation.write_text(ablation.read_text().replace("[pythia.yaml]", "[pythia-70m]"))
    with pytest.raises(SpecError, match=r"report\.external\.0 must be a YAML file beside this one"):
        load_ablation(str(ablation))


def test_the_same_row_twice_is_refused(ablation: Path) -> None:
    write(ablation.parent, name="again")
    ablation.write_text(ablation.read_text().replace("[pythia.yaml]", "[pythia.yaml, again.yaml]"))
    with pytest.raises(SpecError, match=r"a name of its own, got another file's: 'pythia-70m'"):
        load_ablation(str(ablation))
