"""The bench: every row runs at a tiny shape; ratios by hand. No time is asserted."""

import os

import pytest

from bam_lab.errors import SpecError
from bam_lab.run import bench as benches
from bam_lab.run.bench import Bench, Measured, bench, executed, targets
from bam_lab.run.bench_systems import SHAPES, Shape, contenders
from bam_lab.spec.laws import no_generation

TINY = Shape(
    "tiny",
    SHAPES["nano"].model.model_copy(
        update={"vocab_size": 64, "dim": 16, "num_heads": 2, "head_dim": 8, "ffn_dim": 32}
    ),
    batch=2,
    long_seq_len=512,
    long_batch=1,
)


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", os.environ.get("OMP_WAIT_POLICY", "PASSIVE"))


def test_every_row_trains_and_decodes():
    made = bench(TINY, (), "float32", threads=1, rounds=1)
    assert made.matrix_rate > 0
    assert {one.row.library for one in made.rows} == {"bam-lab", "transformers"}
    for one in made.rows:
        assert not one.failure, (one.row.name, one.failure)
        assert one.step > 0 and len(one.forward_backward) == 1
        if no_generation(one.row.method):
            assert "causal inference rule" in one.decode_failure
        else:
            assert one.decode and not one.decode_failure, (one.row.name, one.decode_failure)
    assert all(target.value is not None for target in targets(made))


def made_of(**seconds):
    rows = [
        Measured(row, [seconds[row.name]] * 3, [0.0] * 3, [1.0] * 3)
        for row in contenders(TINY, transformers=True)
        if row.name in seconds
    ]
    return Bench(TINY, rows, 1e9, "float32", 1, True)


def test_targets_by_hand():
    found = targets(
        made_of(
            **{
                "btx top-2": 1.0,
                "dense, active as btx top-2": 0.75,
                "HF Mixtral, eager": 2.0,
                "HF Mixtral, grouped_mm": 1.4,
                "bam soft, kv shared": 2.0,
                "dense, long sequences": 1.0,
                "lory, 8 experts of 256": 1.25,
            }
        )
    )
    rows = {row.name: Measured(row, [1.0], [0.0], [1.0]) for row in contenders(TINY, False)}
    flops = executed(rows["bam soft, kv shared"]) / executed(rows["btx top-2"])
    assert [target.value for target in found] == [1.4, 0.75, 2 / flops, pytest.approx(0.2), None]
    assert [target.met for target in found] == [True, False, 2 / flops <= 1.3, False, None]


def test_rows_are_named():
    with pytest.raises(SpecError, match=r"--system must name rows, got btx\. There are: btx top-2"):
        bench(TINY, ["btx"], "float32", 1)


def test_rows_that_do_not_fit_together_form_sets(monkeypatch):
    rows = [Measured(row, [], [], []) for row in contenders(TINY, transformers=False)]
    assert len(benches._sets(rows)) == 1
    monkeypatch.setattr(
        benches.psutil, "virtual_memory", lambda: type("M", (), {"available": 1.5e9})()
    )
    sets = benches._sets(rows)
    assert [one for group in sets for one in group] == rows
    assert len(sets) == -(-len(rows) // 2)
