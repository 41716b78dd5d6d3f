"""The printed numbers as data, and whether they support the sentences that were made of them."""

import pytest

from bam_lab import resources
from bam_lab.spec.ablation import AblationSpec
from bam_lab.spec.claims import ClaimsFile
from bam_lab.spec.load import list_ablations
from bam_lab.spec.published import PublishedTable
from bam_lab.spec.reader import read

CLAIMS = read(resources.folder("ablations") / "claims.yaml", ClaimsFile).claims
DOMAINS = ("general", "code", "law", "math")


def table(name):
    return read(resources.folder("published") / f"{name}.yaml", PublishedTable)


@pytest.mark.parametrize("path", list_ablations(), ids=lambda path: path.stem)
def test_every_ablation_names_known_claims_and_tables(path):
    spec = read(path, AblationSpec)
    assert set(spec.claims) <= CLAIMS.keys()
    for name in spec.report.published:
        assert table(name).id == name
