"""The calibrate stage: every model's seconds, of a training step and of a decoded token."""

import functools
import json
import threading
from pathlib import Path

import pytest

from bam_lab.evaluate.rounds import in_rounds, paired
from bam_lab.record.numerics import Numerics
from bam_lab.run import stages_calibrate
from bam_lab.run.context import StageContext
from bam_lab.run.stages_calibrate import NAME, calibrate
from tests.model.cases import shape

DENSE = {"method": {"method": "dense"}, "num_experts": 1}
BTX = {
    "method": {
        "method": "btx",
        "ffn_router": {"score": "softmax", "select": "top_k", "top_k": 2, "renormalize": True},
    },
    "num_experts": 4,
}


@pytest.mark.parametrize("measures", ["training step", "decoding"])
def test_every_model_has_its_seconds(
    measures: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = functools.partial(in_rounds, rounds=3, turn_seconds=0.0)
    monkeypatch.setattr(stages_calibrate, "in_rounds", short)
    context = StageContext(
        name="calibrate",
        label="calibrate",
        spec={
            "model": shape().model_dump(mode="json", by_alias=True),
            "models": [DENSE, BTX],
            "measures": measures,
            **({"batch_sequences": 2} if measures == "training step" else {}),
        },
        inputs={},
        settings={},
        threads=1,
        work=tmp_path,
        cache=tmp_path / "cache",
        numerics=Numerics("float32", "cpu"),
        facts={},
        report=lambda progress: None,
        stop=threading.Event(),
    )
    calibrate(context)
    found = json.loads((tmp_path / NAME).read_text())
    assert [len(rounds) for rounds in found["turns"]] == [3, 3]
    assert found["seconds"] == context.facts["seconds"] == paired(found["turns"])
    assert min(found["seconds"]) > 0
