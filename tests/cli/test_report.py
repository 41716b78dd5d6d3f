"""`bam-lab report` follows its file, as far as that asks of the runs that were made."""

import json
from pathlib import Path

import pytest

from bam_lab.record.store import Store
from bam_lab.run.index import NAME, index_key, write_index
from bam_lab.run.reproduce import current_graph
from bam_lab.spec.load import load_ablation
from tests.cli.command import bam_lab


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    """A question of one's own, indexed as by a run of two replicates."""
    made = bam_lab("new", "mine", "--like", "bam-attention-routing", "--to", str(tmp_path))
    assert made.code == 0, made.err
    resolved, store = load_ablation(str(tmp_path / "mine.yaml")), Store(tmp_path / "store")
    store.prepare()
    write_index(resolved, current_graph(resolved, store, 2), store, 2)
    return tmp_path / "mine.yaml"


def report(path: Path):
    return bam_lab("report", str(path), "--store", str(path.parent / "store"), "--json")


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


def test_what_is_asked_of_the_same_runs_may_change(asked):
    before = json.loads(report(asked).out)
    change(asked, "claims: [C1, C2a, C2b, C2c]", "claims: [C2c]")
    done = report(asked)
    after = json.loads(done.out)
    assert [claim["id"] for claim in after["claims"]] == ["C2c"]
    assert len(before["claims"]) == 4 and "other runs" not in done.err
    resolved = load_ablation(str(asked))
    index = json.loads((asked.parent / "store/ablations" / index_key(resolved) / NAME).read_text())
    assert index["ablation"]["claims"] == ["C2c"] and index["replicates"] == 2


def test_other_runs_than_were_made_are_told(asked):
    change(asked, "  btx: {method: btx}\n", "  btx: {method: btx}\n  dense: {method: dense}\n")
    done = report(asked)
    assert done.code == 0
    assert "asks for other runs than those in the store" in " ".join(done.err.split())
    assert "dense" not in {row["arm"] for row in json.loads(done.out)["effects"]}
