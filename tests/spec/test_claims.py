"""Claims as data: what a claim may say, and what is refused."""

import pytest

from bam_lab.errors import SpecError
from bam_lab.spec.claims import ClaimsFile
from bam_lab.spec.evaluation_rules import NEEDS
from bam_lab.spec.measures import MEASURES, unmeasured
from bam_lab.spec.reader import read

HEAD = """schema: 1
claims:
  C1:
    text: t
    source: {paper: p, place: q}
    printed: {numbers: none, supports: none printed}
"""


def claims(tmp_path, test, roles=""):
    path = tmp_path / "claims.yaml"
    path.write_text(f"{HEAD}{roles}    tests: [{test}]\n")
    return read(path, ClaimsFile).claims["C1"]


@pytest.mark.parametrize(
    "test",
    [
        "{test: better, arm: a, than: b, in: every}",
        "{test: better, arm: a, than: b, in: code, setting: at least 2 of 3}",
        "{test: better, arm: a@long, than: a@short, measure: bits_per_byte}",
        "{test: better, arm: a, than: b, measure: load_max}",
        "{test: no_gain, arm: a, over: b, in: at most 1 of 4, match: device-time}",
        "{test: equal, arm: a, to: b}",
        "{test: equal, arm: a, to: b, within: 2}",
        "{test: ratio, arm: a, than: b, measure: kv_bytes, within: 0.05}",
        "{test: ratio, arm: a, than: b, measure: latency, at_most: 1.3}",
        "{test: monotone, arm: a, axis: top_k, direction: falling}",
        "{test: order, arms: [a, b, c], in: at least 3 of 4}",
        "{test: interaction, gap: [a, b], than: [c, d]}",
        "{test: interaction, gap: [a@x, b@x], than: [a@y, b@y]}",
        "{test: trend, gap: [a, b], direction: growing}",
        "{test: reaches, arm: a, target: b, share: 0.5, of: tokens}",
        "{test: diagonal}",
        "{test: diagonal, measure: task_accuracy}",
        "{test: at_home, arm: a}",
        "{test: better_experts, arm: a, than: b, text: general}",
        "{test: better, arm: a, than: b, in: most}",
        "{test: above_chance, arm: a}",
        "{test: cost, arm: a, than: b, measure: kv_bytes, ratio: 1/experts}",
    ],
)
def test_every_kind_of_test_is_read(tmp_path, test):
    assert len(claims(tmp_path, test).tests) == 1


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ("{test: better, arm: a, than: b, in: at least 0 of 4}", r"claims\.yaml:7.*must match"),
        ("{test: better, arm: a, than: b, measure: perplexy}", "must be 'perplexity'"),
        ("{test: better, arm: a, than: b, measure: load_max, in: every}", "`in` has no effect"),
        ("{test: better, arm: a@x, than: b}", "all roles must be ARM@SETTING, or none"),
        ("{test: better, arm: a@x, than: b@x, setting: x}", "`setting` has no effect"),
        ("{test: equal, arm: a, to: b, within: 0}", "must be > 0"),
        ("{test: ratio, arm: a, than: b}", "one of within, at_most, at_least and at_most_as"),
        ("{test: ratio, arm: a, than: b, within: 0.1, at_most: 2}", "one of within"),
        ("{test: ratio, arm: a, than: b, measure: load_max, within: 0.1}", "are not ratios"),
        ("{test: monotone, arm: a, axis: top_k, direction: down}", "must be 'falling'"),
        ("{test: order, arms: [a]}", "at least 2 items"),
        ("{test: interaction, gap: [a, b, c], than: [c, d]}", "at most 2 items"),
        ("{test: reaches, arm: a, target: b, share: 0.5, of: seconds}", "must be 'tokens'"),
        ("{test: cost, arm: a, than: b, measure: latency, ratio: less}", "has error bars"),
        ("{test: better, arm: a, than: b, measure: router_entropy}", "no direction of router_ent"),
        ("{test: equal, arm: a, to: b, in: at most 1 of 4}", "of better and no_gain alone"),
        ("{test: reaches, arm: a, target: b, share: 0.5, of: tokens, measure: bits_per_byte}",
         "`reaches` is about perplexity, got bits_per_byte"),
        ("{test: at_home, arm: a, in: every}", "`in` has no effect, the domains are the experts'"),
        ("{test: worse, arm: a, than: b}", "must have a test of"),
        ("{test: better, arm: a, than: b, in: at least 5 of 4}", "`at least 5 of 4` cannot be"),
        ("{test: better, arm: a, than: b, in: at most 4 of 4}", "`at most 4 of 4` cannot fail"),
        ("{test: better, arm: a, than: b, setting: at least 3 of 2}", "of 2` cannot be"),
        ("{test: better, arm: a, than: a}", "a is compared with itself; name another arm"),
        ("{test: order, arms: [a, b, a]}", "a is compared with itself"),
        ("{test: interaction, gap: [a, b], than: [a, b]}", "a against b is compared with itself"),
        ("{test: cost, arm: a, than: a, measure: kv_bytes, ratio: less}", "compared with itself"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(tmp_path, test, message):
    with pytest.raises(SpecError, match=message):
        claims(tmp_path, test)


def test_a_role_that_no_test_names_is_refused(tmp_path):
    test = "{test: better, arm: a, than: b}"
    assert claims(tmp_path, test, "    roles: {a: [soft]}\n").roles == {"a": ("soft",)}
    with pytest.raises(SpecError, match="no test names the role c"):
        claims(tmp_path, test, "    roles: {c: [soft]}\n")


def test_a_role_that_no_arm_fills_is_refused(tmp_path):
    with pytest.raises(SpecError, match=r"roles\.a must hold at least 1 item, got 0"):
        claims(tmp_path, "{test: better, arm: a, than: b}", "    roles: {a: []}\n")


def test_a_published_claim_says_where_and_what_was_printed(tmp_path):
    path = tmp_path / "claims.yaml"
    path.write_text(
        "schema: 1\nclaims:\n  X:\n    text: So.\n    tests: [{test: better, arm: a, than: b}]\n"
    )
    with pytest.raises(SpecError, match="claim X must have printed and source"):
        read(path, ClaimsFile)


def test_a_wrong_test_is_not_told_again_as_a_missing_one(tmp_path):
    with pytest.raises(SpecError) as error:
        claims(tmp_path, "{test: better, arm: a}")
    assert len(error.value.problems) == 1


def test_what_must_be_asked_for_is_known_by_name():
    asked = {name for name, measure in MEASURES.items() if measure.source == "evaluation"}
    assert asked == set(NEEDS)
    for name in MEASURES:
        assert bool(unmeasured(name)) == (name in asked)
        assert MEASURES[name].title
