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
    for kind in ("configs", "ablations", "published", "eval")
    for path in resources.folder(kind).rglob("*.yaml")
)
ABLATIONS = [path.stem for path in list_ablations()]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_file_checks(path):
    assert problems_of(path) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_file_opens_with_where_it_comes_from(path):
    assert path.read_text().startswith("# ")


PAPERS_SCALES = {
    "bam": ("bam-590m", "bam-2b"),
    "btx": ("btx-7b",),
    "lory": ("lory-0.3b", "lory-1.5b", "lory-7b"),
    "upcycling": ("su-decoder", "su-decoder-large", "su-decoder-xl"),
}
NO_TEXT = "general_repeats must be larger where the corpus has at most"
NO_DOMAIN = "must be a domain of the corpus, got 'python'"
REFUSED = {
    # The default corpus cannot give a phase of 100 billion tokens text that it reads once.
    ("bam-general-share", "bam-590m"): NO_TEXT,
    ("bam-general-share", "bam-2b"): NO_TEXT,
    # With grouped queries an attention expert is smaller than two FFN experts.
    ("bam-active-parameters", "bam-2b"): "must bring arm btx-6-top-3 within 0.5%",
    ("bam-total-parameters", "bam-2b"): "got the same run once the match has turned",
    ("bam-equal-inference-flops", "bam-2b"): "must bring arm btx within 0.5%",
    # The scale's corpus has four domains.
    ("btx-eight-domains", "btx-7b"): NO_DOMAIN,
    ("btx-lora", "btx-7b"): NO_DOMAIN,
}


@pytest.mark.parametrize("ablation", ABLATIONS)
def test_ablation_plans_at_its_scale_and_the_papers(ablation, tmp_path):
    family = find_ablation(ablation).parent.name
    for scale in (None, *PAPERS_SCALES[family]):
        if (ablation, scale) in REFUSED:
            with pytest.raises(SpecError, match=REFUSED[ablation, scale]):
                make_plan(load_ablation(ablation, scale=scale), Store(tmp_path), 2, None)
            continue
        resolved = load_ablation(ablation, scale=scale)
        made = make_plan(resolved, Store(tmp_path), replicates=2, workers=None)
        assert {row.arm for row in made.models} >= {*resolved.arms}
        unmatched = [r.arm for r in made.models if r.budget is not None and not r.budget.matched]
        if resolved.ablation.match.on != "decode-throughput":  # which calibration will tell
            assert bool(unmatched) == bool(resolved.ablation.match.unmatched), unmatched
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
