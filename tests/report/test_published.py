"""The printed numbers as data, and whether they support the sentences that were made of them."""

import math

import pytest

from bam_lab import resources
from bam_lab.spec.ablation import AblationSpec
from bam_lab.spec.claims import ClaimsFile
from bam_lab.spec.load import list_ablations
from bam_lab.spec.published import PublishedTable
from bam_lab.spec.reader import read

TABLES = sorted(resources.folder("published").glob("*.yaml"))
CLAIMS = read(resources.folder("ablations") / "claims.yaml", ClaimsFile).claims
DOMAINS = ("general", "code", "law", "math")


def table(name):
    return read(resources.folder("published") / f"{name}.yaml", PublishedTable)


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_every_table_is_whole(path):
    found = read(path, PublishedTable)
    assert found.id == path.stem
    assert found.baseline in {row.arm for row in found.rows}
    pairs = [(row.arm, row.match) for row in found.rows]
    assert len(pairs) == len(set(pairs))
    for row in found.rows:
        assert row.values.keys() <= found.columns.keys()


@pytest.mark.parametrize(
    ("name", "averaged", "most"),
    [
        ("bam-table-1", DOMAINS, 0.006),
        ("bam-table-2", ("code", "law", "math"), 0.011),  # the average leaves pretrain out
        ("bam-table-6", DOMAINS, 0.006),
        ("bam-table-3", ("math", "code", "law", "knowledge", "reasoning", "mmlu"), 0.02),
    ],
)
def test_printed_averages_come_out(name, averaged, most):
    for row in table(name).rows:
        mean = math.fsum(row.values[domain] for domain in averaged) / len(averaged)
        assert row.values["average"] == pytest.approx(mean, abs=most), row.name


def test_lookup_by_arm_match_domain():
    one = table("bam-table-1")
    assert one.value("kv-experts", "tokens", "general", "perplexity") == 24.02
    assert one.value("kv-experts", "flops", "general", "perplexity") == 24.84
    assert one.value("btx", "tokens", "math", "perplexity") == 5.77
    assert one.value("kv-experts", "flops", "poetry", "perplexity") is None
    assert one.value("top-9", "flops", "math", "perplexity") is None


def test_table_7_totals_follow_from_their_parts():
    for row in table("bam-table-7").rows:
        routers = 1 if row.arm.startswith("btx") else 2
        n = int(row.values["experts"])
        parts = row.values["attention"] + row.values["ffn"]
        assert row.values["flops"] == parts + routers * 2 * n * 1024


@pytest.mark.parametrize("path", list_ablations(), ids=lambda path: path.stem)
def test_every_ablation_names_known_claims_and_tables(path):
    spec = read(path, AblationSpec)
    assert set(spec.claims) <= CLAIMS.keys()
    for name in spec.report.published:
        assert table(name).id == name
