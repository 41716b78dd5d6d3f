"""Estimated times: list scheduling by hand, and where a pace comes from."""

import json

from bam_lab.cost import time
from bam_lab.cost.time import Job, makespan
from bam_lab.record import ledger, numerics
from bam_lab.record.ledger import Ledger
from bam_lab.record.numerics import Numerics
from bam_lab.record.store import Store


def test_makespan_runs_what_fits_side_by_side():
    seed = Job(10, threads=2, needs=[])
    branches = [Job(4, threads=1, needs=[0]) for _ in range(3)]
    assert makespan([seed, *branches], cores=2) == 10 + 4 + 4
    assert makespan([seed, *branches], cores=1) == 10 + 12
    assert makespan([seed, *branches], cores=4) == 10 + 4
    assert makespan([], cores=2) == 0


def test_makespan_waits_for_inputs():
    jobs = [Job(5, 1, []), Job(1, 1, []), Job(1, 1, [0, 1])]
    assert makespan(jobs, cores=8) == 6


def test_pace_is_a_stated_default_until_something_was_measured(tmp_path):
    store = Store(tmp_path)
    store.prepare()
    pace = time.pace(store)
    assert "default" in pace.source()
    assert pace.estimate("mixture", round(pace.default * 60), threads=2) == 30
    assert pace.estimate("tokenizer", 0, threads=1) == time.DEFAULT_SECONDS["tokenizer"]


def test_a_stage_has_one_gpu_whatever_its_threads(tmp_path, monkeypatch):
    monkeypatch.setattr(numerics, "detect", lambda: Numerics("bf16-mixed", "cuda"))
    store = Store(tmp_path)
    store.prepare()
    pace = time.pace(store)
    assert pace.estimate("mixture", round(time.DEFAULT_GPU_FLOPS * 60), threads=16) == 60
    assert "a GPU" in pace.source()


def _finish(store, key, training):
    folder = store.open_work(key)
    if training:
        spent = Ledger(
            tokens=1, steps=1, training_flops=1e9, executed_flops=3e9, params_total=1,
            params_active=1, device_seconds=6.0, wall_seconds=3.0,
        )  # fmt: skip
        ledger.write(folder, spent)
    (folder / "manifest.json").write_text(json.dumps({"wall_s": 7.0}))
    store.publish(key)


def test_pace_takes_what_the_store_measured(tmp_path):
    store = Store(tmp_path)
    store.prepare()
    _finish(store, "mixture-0123456789abcdef", training=True)
    _finish(store, "tokenizer-0123456789abcdef", training=False)
    pace = time.pace(store)
    assert pace.flops == {"mixture": 0.5e9}
    assert pace.estimate("mixture", 2_000_000_000, threads=2) == 2
    assert pace.estimate("expert", 2_000_000_000, threads=2) == 2
    assert pace.estimate("tokenizer", 0, threads=1) == 7
    assert "measured in this store (mixture, tokenizer)" in pace.source()
