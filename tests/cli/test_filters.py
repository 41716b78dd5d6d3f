"""`list` by question, claim and paper."""

import json
from pathlib import Path

import pytest

from bam_lab.cli.filters import Filter, chosen
from bam_lab.errors import InputError
from tests.cli.command import bam_lab


def test_names_are_found_whatever_their_case():
    assert "Did you mean `A7`?" in bam_lab("list", "--question", "a7").err
    assert "Did you mean `bam`?" in bam_lab("list", "--paper", "BAM").err


def test_what_nothing_is_at_once_is_said(tmp_path):
    asked = ("list", "--question", "A7", "--claim", "C16", "--store", str(tmp_path))
    assert "No ablation is all that is asked for at once." in bam_lab(*asked).out
    assert bam_lab(*asked, "--json").out.strip() == "[]"


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    """Return small files in the folders of two papers, one of them no YAML."""
    texts = {
        "bam/one": "answers: [A7, A8]\nclaims: [C2a, C20]\nsource: {paper: 'arXiv:2408.08274'}",
        "bam/two": "answers: [A8]\nclaims: [C1]\nsource: {paper: 'arXiv:2408.08274'}",
        "lory/three": "claims: [C2]\nsource: {paper: 'arXiv:2405.03133'}",
        "lory/broken": "answers: [",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.yaml").write_text(text)
    return [tmp_path / f"{name}.yaml" for name in texts]


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (Filter(), ["one", "two", "three", "broken"]),
        (Filter(question="A7"), ["one"]),
        (Filter(question="A8"), ["one", "two"]),
        (Filter(claim="C2"), ["one", "three"]),
        (Filter(claim="C2a"), ["one"]),
        (Filter(claim="C20"), ["one"]),
        (Filter(paper="lory"), ["three", "broken"]),
        (Filter(paper="2408.08274"), ["one", "two"]),
        (Filter(question="A8", claim="C1"), ["two"]),
        (Filter(question="A7", paper="lory"), []),
    ],
)
def test_chosen(paths: list[Path], wanted: Filter, names: list[str]) -> None:
    assert [path.stem for path in chosen(paths, wanted)] == names


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (Filter(question="A9"), r"--question must name .* got 'A9'\. Did you mean `A[78]`\?"),
        (Filter(claim="C3"), r"--claim must name .* got 'C3'\."),
        (Filter(paper="bram"), r"--paper must name .* Did you mean `bam`\?"),
    ],
)
def test_names_that_nothing_has(paths: list[Path], wanted: Filter, message: str) -> None:
    with pytest.raises(InputError, match=message):
        chosen(paths, wanted)


def test_list_shows_those_alone(tmp_path: Path) -> None:
    done = bam_lab("list", "--question", "A11", "--json", "--store", str(tmp_path))
    assert done.code == 0, done.err
    assert "bam-general-share" in {entry["id"] for entry in json.loads(done.out)}
    shown = bam_lab("list", "--question", "A11", "--store", str(tmp_path))
    assert "bam-general-share" in shown.out and "btx-eight-domains" not in shown.out
