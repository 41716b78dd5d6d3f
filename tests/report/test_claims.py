"""The verdicts: each arises where it should, and says what it is about."""

import pytest

from bam_lab.report.claims import judge
from bam_lab.report.render import declared_claims
from bam_lab.spec.claims import Claim


def claim(*tests, roles=None):
    return Claim.model_validate(
        {
            "text": "a sentence",
            "source": {"paper": "p", "place": "q"},
            "printed": {"numbers": "none", "supports": "none printed"},
            "roles": roles or {},
            "tests": list(tests),
        },
        strict=False,
    )


def better(arm="soft", than="btx", where="every", **more):
    return {"test": "better", "arm": arm, "than": than, "in": where, **more}


def no_gain(arm="top-2", over="btx", where="every", **more):
    return {"test": "no_gain", "arm": arm, "over": over, "in": where, **more}


def verdict(evidence, *tests, **more):
    return judge(evidence, {"X": claim(*tests, **more)})[0]


@pytest.mark.parametrize(
    ("effects", "test", "expected"),
    [
        ({"soft": -0.02}, better(), "holds"),
        ({"soft": 0.02}, better(), "contradicted"),
        ({"soft": 0.0}, better(), "no difference"),
        ({"soft": -0.02}, better(than="soft", arm="btx"), "contradicted"),
        # Significant, but smaller than the margin: neither holds nor is contradicted.
        ({"soft": -0.003}, better(), "no difference"),
        # One domain the wrong way refutes "every", three of four bear "at least 3".
        ({"soft": {"general": -0.02, "code": -0.02, "law": -0.02, "math": 0.02}}, better(),
         "contradicted"),
        ({"soft": {"general": -0.02, "code": -0.02, "law": -0.02, "math": 0.02}},
         better(where="at least 3 of 4"), "holds"),
        ({"soft": {"general": -0.02, "code": -0.02, "law": 0.02, "math": 0.02}},
         better(where="at least 3 of 4"), "contradicted"),
        ({"soft": {"general": -0.02, "code": 0.02, "law": 0.02, "math": 0.02}},
         better(where="at most 1 of 4"), "holds"),
        ({"soft": -0.02}, better(where="at most 1 of 4"), "contradicted"),
        ({"soft": -0.02}, better(where="average"), "holds"),
        ({"top-2": 0.0}, no_gain(), "holds"),
        ({"top-2": 0.02}, no_gain(), "holds"),
        ({"top-2": -0.02}, no_gain(), "contradicted"),
    ],
)  # fmt: skip
def test_each_verdict(evidence_of, effects, test, expected):
    evidence = evidence_of(replicates=5, effects=effects, sd=0.0005)
    assert verdict(evidence, test).verdict == expected


def test_too_much_noise_is_inconclusive_and_says_what_it_would_take(evidence_of):
    found = verdict(evidence_of(replicates=3, effects={"soft": -0.02}, sd=0.03), better())
    assert found.verdict == "inconclusive"
    assert "replicates (power 0.8)" in found.details[-1]


def test_one_replicate_is_not_judged_however_large_the_effect(evidence_of):
    found = verdict(evidence_of(replicates=1, effects={"soft": -0.5}), better())
    assert found.verdict == "not judged (1 replicate)"
    assert found.p is None
    assert "agrees with the claim in 4 of 4" in found.details[0]


def test_every_verdict_prints_its_scope(evidence_of):
    for found in judge(evidence_of(replicates=5), {"X": claim(better())}):
        for part in ("scale nano", "700k parameters", "4.10M mixture-phase tokens", "feedbeef",
                     "5 replicates, each redoing branches and mixture phase", "FLOPs"):  # fmt: skip
            assert part in found.scope


@pytest.mark.parametrize(
    ("settings", "test", "expected", "why"),
    [
        ({"match": "tokens"}, better(match="flops"), "out of scope", "matches on tokens"),
        ({}, better(arm="no-such-arm"), "out of scope", "no arm no-such-arm"),
        ({}, better(where="at least 4 of 5"), "out of scope", "said of 5 domains"),
        ({"unmatched": ("soft",)}, better(), "out of scope", "soft is not ranked"),
        ({"overrides": ("scale.tokens=1",)}, better(), "out of scope", "--set"),
        ({"added": ("poetry",)}, better(), "out of scope", "run with --domain poetry"),
        ({"failed": tuple(("soft", r) for r in range(5))}, better(), "not measured", "NaN"),
        ({"undone": tuple(("soft", r) for r in range(5))}, better(), "not measured",
         "not run yet: mixture soft r0"),
    ],
)  # fmt: skip
def test_what_cannot_be_judged_says_why(evidence_of, settings, test, expected, why):
    found = verdict(evidence_of(replicates=5, **settings), test)
    assert found.verdict == expected
    assert why in " ".join(found.details)


def test_a_conjunction_with_an_unmeasured_part_never_holds(evidence_of):
    gone = tuple(("top-1", r) for r in range(5))
    evidence = evidence_of(replicates=5, failed=gone)
    assert verdict(evidence, better(), better(arm="top-1")).verdict == "not measured"
    assert verdict(evidence, better("btx", "soft"), better("top-1")).verdict == "contradicted"


def test_a_claim_about_part_of_its_tests_says_so(evidence_of):
    found = verdict(evidence_of(replicates=5), better(match="flops"), better(match="tokens"))
    assert (found.verdict, found.qualifier) == ("holds", "1 of 2 tests")


def test_conjunction_needs_all_its_tests(evidence_of):
    evidence = evidence_of(replicates=5)  # soft < btx = top-2 (roughly) < top-1
    tests = (better(where="average"), better("top-2", "top-1", "average"))
    assert verdict(evidence, *tests).verdict == "holds"
    assert verdict(evidence, better(), better("top-1", "btx")).verdict == "contradicted"


def test_holm_over_claims(evidence_of):
    evidence = evidence_of(replicates=5, effects={"soft": -0.02}, sd=0.01)
    alone = judge(evidence, {"X": claim(better())})[0]
    among = judge(evidence, {n: claim(better()) for n in "ABCD"})
    assert among[0].p == pytest.approx(min(1.0, 4 * alone.p))


def test_roles_are_filled_by_the_first_arm_that_is_there(evidence_of):
    found = verdict(
        evidence_of(replicates=5), better("a-role"), roles={"a-role": ["kv-sharing", "soft"]}
    )
    assert found.verdict == "holds"


def test_diagonal(evidence_of):
    assert verdict(evidence_of(replicates=5), {"test": "diagonal"}).verdict == "holds"


def test_diagonal_is_not_judged_when_branches_are_not_redone(evidence_of):
    found = verdict(evidence_of(replicates=5, redone="mixture"), {"test": "diagonal"})
    assert found.verdict == "not judged (1 replicate)"


def test_costs_are_exact(evidence_of):
    every = {"select": "all"}
    arms = {
        "btx": {"method": "btx"},
        "kv-sharing": {"method": "bam", "kv": "shared", "attention_router": every},
        "kv-experts": {"method": "bam", "kv": "per_expert", "attention_router": every},
    }
    evidence = evidence_of(replicates=1, arms=arms)
    fewer = {"test": "cost", "arm": "kv-sharing", "than": "kv-experts"}
    flops = {**fewer, "measure": "training_flops_per_token", "ratio": "less"}
    kv = {**fewer, "measure": "kv_bytes", "ratio": "1/experts"}
    assert verdict(evidence, flops, kv).verdict == "holds"
    swapped = {**flops, "arm": "kv-experts", "than": "kv-sharing"}
    assert verdict(evidence, swapped).verdict == "contradicted"


def test_the_shipped_claims_of_the_attention_table(evidence_of):
    evidence = evidence_of(replicates=5, sd=0.0005)
    found = {j.id: j.verdict for j in judge(evidence, declared_claims(evidence))}
    # C2b: top-2 differs from btx in law only.
    assert found == {"C1": "holds", "C2a": "holds", "C2b": "no difference", "C2c": "holds"}


def test_claims_of_an_ablations_own_are_judged_after_the_published(evidence_of):
    evidence = evidence_of(replicates=5, sd=0.0005)
    own = {"soft-wins": {"text": "So.", "tests": [better()]}}
    told = evidence.model_copy(update={"ablation": evidence.ablation | {"own_claims": own}})
    judged = judge(told, declared_claims(told))
    assert [j.id for j in judged][-1] == "soft-wins" and len(judged) == 5
    assert judged[-1].verdict == "holds" and judged[-1].claim.source.paper == ""


def test_a_domain_held_out_as_a_whole_is_shown_and_never_judged(evidence_of):
    gain = {"general": -0.02, "code": -0.02, "law": -0.02, "math": -0.02, "web": 5.0}
    evidence = evidence_of(replicates=5, effects={"soft": gain}, sd=0.0005, alone=("web",))
    assert evidence.held_out_only == ("web",) and "web" not in evidence.domains
    assert [c.nll for c in evidence.cells if (c.name, c.domain) == ("soft", "web")] != []
    for where in ("every", "average", "at least 4 of 4"):
        found = verdict(evidence, better(where=where))
        assert found.verdict == "holds", where
        assert "web" not in " ".join(found.details)


def test_a_diagonal_of_branches_that_the_recipe_does_not_know_is_out_of_scope(evidence_of):
    evidence = evidence_of(replicates=5)
    other = tuple(
        cell.model_copy(update={"name": f"{cell.name} with 50% general"})
        if cell.role == "expert"
        else cell
        for cell in evidence.cells
    )
    found = verdict(evidence.model_copy(update={"cells": other}), {"test": "diagonal"})
    assert found.verdict == "out of scope"
    assert "no branch is trained as the recipe says" in " ".join(found.details)
