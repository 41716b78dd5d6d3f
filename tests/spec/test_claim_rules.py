"""Claims that an ablation names must be about its arms, axes, settings and domains."""

from pathlib import Path

import pytest

from bam_lab.errors import SpecError
from bam_lab.spec.claim_rules import Subject, claim_problems, misfits
from bam_lab.spec.claims import Claim
from bam_lab.spec.load import known_claims, list_ablations, load_ablation
from bam_lab.spec.messages import checked
from bam_lab.spec.reader import load, tuples
from bam_lab.spec.resolved import ResolvedAblation

TEXT = """\
schema: 1
id: mine
title: Mine
source: {paper: "arXiv:2405.03133"}
question: What then?
recipe: bam
scale: nano
match: {on: tokens}
baseline: dense
replicates: {from: mixture, count: 2}
report: {columns: [heldout/*/perplexity]}
claims: [X]
arms:
  dense: {method: dense}
  lory: {method: lory, first_segment: uniform, over: {segment_len: [16, 32]}}
"""
SETTINGS = "settings: {parallel: {}, serial: {model.block: serial}}\n"


def told(folder: Path, *tests: dict[str, object], text: str = TEXT, roles: object = None) -> str:
    """Return what is wrong with a claim of these tests."""
    path = folder / "mine.yaml"
    path.write_text(text.replace("[X]", "[]"))
    resolved = load_ablation(str(path))
    claim = checked(
        Claim,
        text="So it is.",
        source={"paper": "arXiv:2405.03133", "place": "§4"},
        printed={"numbers": "none", "supports": "none printed"},
        roles=tuples(roles or {}),
        tests=tuples(list(tests)),
    )
    path.write_text(text)
    return "\n".join(claim_problems(load(path), subject(resolved), {"X": claim}, {}))


def subject(resolved: ResolvedAblation) -> Subject:
    """Return what claims may be about, from the ablation as it is resolved."""
    children = [child for _, child in resolved.settings]
    shared = {axis for child in children for axis in child.point.axes}
    lines = {arm.partition("@")[0]: frozenset(shared) for arm in resolved.arms}
    for arm, base in resolved.bases.items():
        lines[base] = lines.get(base, frozenset()) | frozenset(resolved.axes[arm])
    return Subject(
        arms=frozenset(arm.partition("@")[0] for arm in resolved.arms),
        bases=frozenset(resolved.bases.values()),
        settings=tuple(child.setting for child in children if child.setting),
        axes=frozenset(axis for axes in resolved.axes.values() for axis in axes),
        domains=tuple(resolved.domains),
        lines=lines,
    )


def better(arm: str = "lory-16", than: str = "dense", **others: object) -> dict[str, object]:
    return {"test": "better", "arm": arm, "than": than, **others}


MONOTONE = {"test": "monotone", "arm": "lory", "axis": "segment_len", "direction": "falling"}


def test_a_claim_that_fits_is_no_problem(tmp_path: Path) -> None:
    assert told(tmp_path, better(), MONOTONE, better(**{"in": "law"})) == ""
    assert told(tmp_path, better("a"), roles={"a": ["btx", "lory-32"]}) == ""
    serial = better("lory-16@serial", "dense@parallel")
    assert told(tmp_path, serial, better(setting="serial"), text=TEXT + SETTINGS) == ""
    assert told(tmp_path, {**MONOTONE, "axis": "setting"}, text=TEXT + SETTINGS) == ""


@pytest.mark.parametrize(
    ("test", "message"),
    [
        (better("lory-61"), "mine.yaml:12:10: claims.0 must be judged by this ablation: it needs"),
        (better("lory-61"), "it needs an arm 'lory-61'. Did you mean `lory-16`?"),
        (better("lory"), "it needs an arm 'lory'"),
        (better("lory-16@serial", "dense@serial"), "it needs a setting 'serial'"),
        (better(setting="serial"), "it needs a setting 'serial'"),
        (better(**{"in": "laws"}), "it is of a domain 'laws'. Did you mean `law`?"),
        ({**MONOTONE, "axis": "segment_length"}, "it needs an axis 'segment_length'. Did you mean"),
        ({**MONOTONE, "axis": "setting"}, "it needs an axis 'setting'"),
        ({"test": "order", "arms": ["lory-16", "lory-61", "dense"]}, "an arm 'lory-61'"),
        ({**MONOTONE, "arm": "dense"}, "it needs an axis 'segment_len' of dense. There is one of "),
        ({**MONOTONE, "arm": "lory-16"}, "it needs an axis 'segment_len' of lory-16. There is one"),
        (better(**{"in": "at least 3 of 5"}), "it is said of 5 domains, there are 4."),
        (better(setting="at least 2 of 3"), "it is said of 3 settings, there are 1."),
    ],
)
def test_a_claim_about_what_is_not_there(
    tmp_path: Path, test: dict[str, object], message: str
) -> None:
    assert message in told(tmp_path, test)


def test_a_role_that_no_arm_fills_lists_who_could(tmp_path: Path) -> None:
    assert "it needs one of btx, soft" in told(tmp_path, better("a"), roles={"a": ["btx", "soft"]})


def test_two_roles_that_one_arm_fills_are_no_comparison(tmp_path: Path) -> None:
    roles = {"a": ["btx", "lory-32"], "b": ["lory-32"]}
    message = "it compares arm 'lory-32' with itself, which fills two of its roles."
    assert message in told(tmp_path, better("a", "b"), roles=roles)
    gaps = {"gap": ["a", "dense"], "than": ["b", "dense"]}
    told_of = told(tmp_path, {"test": "interaction", **gaps}, roles=roles)
    assert "it compares arm 'lory-32 against dense' with itself" in told_of


def test_one_test_that_fits_is_enough(tmp_path: Path) -> None:
    assert told(tmp_path, better("btx"), better()) == ""


def test_a_file_with_such_a_claim_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(TEXT.replace("[X]", "[C2c]"))
    with pytest.raises(SpecError, match=r"claims\.0 must be judged by this ablation: it needs"):
        load_ablation(str(path))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("[heldout/*/perplexit]", "must be heldout/*/perplexity or measure/NAME, got 'heldout/*"),
        ("[measure/load_mx]", "got 'measure/load_mx'. Did you mean `measure/load_max`?"),
        ("[measure/load_max, measure/load_max]", "must stand once, got 'measure/load_max' again"),
    ],
)
def test_columns_are_measures_that_exist(tmp_path: Path, columns: str, message: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(TEXT.replace("[X]", "[]").replace("[heldout/*/perplexity]", columns))
    with pytest.raises(SpecError) as error:
        load_ablation(str(path))
    assert message in str(error.value)


def test_every_test_of_every_claim_is_made_by_some_ablation_that_names_it() -> None:
    left = {(name, i) for name, claim in known_claims().items() for i in range(len(claim.tests))}
    for path in list_ablations():
        resolved = load_ablation(str(path))
        for name in resolved.ablation.claims:
            for index, test in enumerate(known_claims()[name].tests):
                if not list(misfits(subject(resolved), known_claims()[name], test)):
                    left.discard((name, index))
    assert sorted(left) == []


def test_a_claim_is_told_beside_all_else_that_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(TEXT.replace("[X]", "[C2c]").replace("uniform", "unifrom"))
    with pytest.raises(SpecError) as error:
        load_ablation(str(path))
    assert "claims.0 must be judged by this ablation: it needs" in str(error.value)
    assert "first_segment must be 'own_mean', 'bos' or 'uniform', got 'unifrom'" in str(error.value)


OWN = """\
own_claims:
  wider-is-better:
    text: Longer segments are better in law.
    tests: [{test: better, arm: lory-32, than: ARM, in: law}]
"""


def test_a_file_may_make_claims_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(TEXT.replace("[X]", "[]") + OWN.replace("ARM", "lory-16"))
    claim = load_ablation(str(path)).ablation.own_claims["wider-is-better"]
    assert claim.printed.supports == "none printed" and not claim.source.paper
    path.write_text(TEXT.replace("[X]", "[]") + OWN.replace("ARM", "lory-64"))
    with pytest.raises(SpecError, match=r"own_claims\.wider-is-better must be judged.*lory-64"):
        load_ablation(str(path))
    both = "}, {test: better, arm: lory-64, than: dense}]"  # no other file has the second
    path.write_text(TEXT.replace("[X]", "[]") + OWN.replace("ARM", "lory-16").replace("}]", both))
    with pytest.raises(SpecError, match=r"own_claims\.wider-is-better must be judged.*lory-64"):
        load_ablation(str(path))


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ("{test: at_home, arm: dense}", "it needs dense experts behind dense, which has none."),
        ("{test: better_experts, arm: mean, than: dense, text: own}", "dense experts behind dense"),
        ("{test: reaches, arm: mean, target: dense, share: 0.5, of: tokens}", "phase of mean, whi"),
        ("{test: trend, gap: [dense, mean], direction: growing}", "mixture phase of mean, which"),
        (
            "{test: better, arm: lory-16, than: dense, measure: load_min}",
            "FFN experts in dense, for",
        ),
        (
            "{test: better, arm: lory-16, than: lory-32, measure: attention_load_max}",
            "it needs attention experts in lory-16, for attention_load_max.",
        ),
        (
            "{test: better, arm: lory-16, than: dense, measure: transfer_at_equal_loss}",
            "it needs domains under `transfer` in the recipe.",
        ),
        (
            "{test: better, arm: lory-16, than: dense, match: flops}",
            "matched on flops, match.on is",
        ),
    ],
)
def test_a_claim_needs_arms_that_have_what_it_compares(
    tmp_path: Path, test: str, message: str
) -> None:
    path = tmp_path / "mine.yaml"
    text = TEXT.replace("[X]", "[]") + "  mean: {method: average}\n"
    path.write_text(f"{text}own_claims: {{mine: {{text: So it is., tests: [{test}]}}}}\n")
    with pytest.raises(SpecError, match=r"own_claims\.mine must be judged by this abl") as error:
        load_ablation(str(path))
    assert message in str(error.value)


def test_own_claims_are_told_beside_all_else_that_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    text = TEXT.replace("[X]", "[]").replace("baseline: dense", "baseline: dens")
    path.write_text(text + OWN.replace("ARM", "lory-64"))
    with pytest.raises(SpecError) as error:
        load_ablation(str(path))
    assert "baseline must be an arm, got 'dens'" in str(error.value)
    assert "own_claims.wider-is-better must be judged" in str(error.value)
