"""Every question has an answer, every claim an ablation, and the generated table is not stale."""

from pathlib import Path

import pytest

from bam_lab import resources
from bam_lab.cli.catalogue import catalogue
from bam_lab.cli.kinds import problems_of
from bam_lab.errors import SpecError
from bam_lab.spec.ablation import AblationSpec
from bam_lab.spec.answers import AnswersFile
from bam_lab.spec.claims import ClaimsFile
from bam_lab.spec.load import list_ablations, load_ablation
from bam_lab.spec.reader import read

FOLDER = resources.folder("ablations")
QUESTIONS = read(FOLDER / "answers.yaml", AnswersFile).questions
CLAIMS = read(FOLDER / "claims.yaml", ClaimsFile).claims
SPECS = [read(path, AblationSpec) for path in list_ablations()]
PUBLISHED = sorted(path.stem for path in resources.folder("published").glob("*.yaml"))


def test_the_questions_are_those_of_the_reviews() -> None:
    last = {"A": 15, "B": 23, "C": 9, "D": 3}
    asked = {f"{letter}{n}" for letter, most in last.items() for n in range(1, most + 1)}
    assert QUESTIONS.keys() == asked


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_question_has_an_answer(name: str) -> None:
    assert QUESTIONS[name].answer or any(name in spec.answers for spec in SPECS)


def test_the_claims_to_judge_are_all_there() -> None:
    numbers = {int(name.strip("Cabcdefgh")) for name in CLAIMS}
    assert numbers == set(range(1, 28))
    assert {"C1e", "C2a", "C2b", "C2c", "C6b", "C15a", "C15b", "C15c", "C15d"} <= CLAIMS.keys()


@pytest.mark.parametrize("name", CLAIMS)
def test_every_claim_is_judged_by_an_ablation(name: str) -> None:
    assert any(name in spec.claims for spec in SPECS)


@pytest.fixture(scope="module")
def written() -> str:
    return catalogue()


def test_the_generated_table_is_not_stale(written: str) -> None:
    assert (FOLDER / "README.md").read_text() == written, "run `make catalogue`"


def test_the_generated_table_has_everything_and_its_links_lead_somewhere(written: str) -> None:
    rows = [line.split(" | ") for line in written.splitlines() if line.startswith("| ")]
    heads = {row[0].removeprefix("| ").split("]")[0].strip("[") for row in rows}
    ids = [spec.id for spec in SPECS]
    assert heads >= {*QUESTIONS, *CLAIMS, *ids, *PUBLISHED}
    assert all(cell.strip(" |") for row in rows for cell in row[:2])
    for part in written.split("](")[1:]:
        assert (FOLDER / part.split(")")[0]).is_file()


def test_a_gap_in_the_questions_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "answers.yaml"
    path.write_text("schema: 1\nquestions:\n  A1: {of: BAM, text: t}\n  A3: {of: BAM, text: t}\n")
    assert [problem.partition(": ")[2] for problem in problems_of(path)] == [
        "questions must count A1 to A2 in order, got A1, A3."
    ]


def test_an_answer_to_no_question_is_refused() -> None:
    with pytest.raises(SpecError, match=r"answers.0 must be a question .* got 'A16'"):
        load_ablation("bam-attention-routing", overrides=["answers=[A16]"])
