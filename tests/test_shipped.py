"""Every shipped YAML decodes, expands and plans."""

from pathlib import Path

import pytest

from bam_lab import resources
from bam_lab.cli.kinds import problems_of
from bam_lab.cli.planning import make_plan
from bam_lab.errors import SpecError
from bam_lab.record.store import Store
from bam_lab.spec.load import find_ablation, list_ablations, load_ablation

ROOT = Path(__file__).parents[1]
FILES = sorted(
    path
    for kind in ("configs", "ablations", "published")
    for path in resources.folder(kind).rglob("*.yaml")
)
ABLATIONS = [path.stem for path in list_ablations()]
SCALES = sorted(path.stem for path in (resources.folder("configs") / "scale").glob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_file_checks(path):
    assert problems_of(path) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_file_opens_with_where_it_comes_from(path):
    assert path.read_text().startswith("# ")


REFUSED = {
    # The default corpus cannot give a phase of 100 billion tokens text that it reads once.
    ("bam-general-share", "bam-590m"): "general_repeats must be larger where the corpus has at",
    ("bam-general-share", "bam-2b"): "general_repeats must be larger where the corpus has at most",
}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("ablation", ABLATIONS)
def test_ablation_plans_at_every_scale(ablation, scale, tmp_path):
    why = REFUSED.get((ablation, scale))
    if (ablation == "btx-eight-domains") != (scale == "nano-eight"):
        why = "must be a domain of the corpus, got"
    if why:
        with pytest.raises(SpecError, match=why):
            make_plan(load_ablation(ablation, scale=scale), Store(tmp_path), 2, None)
        return
    resolved = load_ablation(ablation, scale=scale)
    made = make_plan(resolved, Store(tmp_path), replicates=2, workers=None)
    assert {row.arm for row in made.models} == {"", *resolved.arms}
    assert all(row.budget is None or row.budget.matched for row in made.models)
    assert made.seconds_left > 0


def test_aliases_are_unique_but_for_those_that_two_versions_give_to_two_tables():
    names = list(ABLATIONS)
    for ablation in ABLATIONS:
        names += load_ablation(ablation).ablation.aliases
    twice = {name for name in names if names.count(name) > 1}
    assert twice == {"bam-table-6"}  # Table 6 of v2, and of the submission
    for name in set(names) - twice:
        assert find_ablation(name).is_file()


def test_published_tables_and_claims_that_ablations_name_exist():
    for ablation in ABLATIONS:
        for published in load_ablation(ablation).ablation.report.published:
            assert (resources.folder("published") / f"{published}.yaml").is_file()


def test_a_scale_that_is_not_there_is_said():
    with pytest.raises(SpecError, match="Did you mean `nano`"):
        load_ablation(ABLATIONS[0], scale="nanno")
