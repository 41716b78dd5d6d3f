"""A loss or gradient that is not finite stops the phase, before its weights are checkpointed."""

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from bam_lab.data.tokens.datamodule import Spread
from bam_lab.errors import Diverged
from bam_lab.train.callbacks import Recorder
from bam_lab.train.optim import Training


@pytest.mark.parametrize(
    ("loss", "grad_norm"), [(math.nan, 1.0), (math.inf, 1.0), (2.0, math.nan), (2.0, math.inf)]
)
def test_stops_naming_step_rate_and_checkpoint(
    tmp_path: Path, loss: float, grad_norm: float
) -> None:
    recorder = Recorder(tmp_path, 10, lambda progress: None, dict, 0, lambda before: ({}, before))
    recorder.last_checkpoint = 5
    training = Training(steps=100, warmup_steps=10, peak_lr=0.01)
    module = SimpleNamespace(
        first_step=5, training_settings=training, grad_norm=grad_norm, spread=Spread()
    )
    outputs = {"metrics": {"loss": torch.tensor(loss)}}
    told = r"at step 7 \(learning rate 0\.007; last good checkpoint: step 5\)\. Lower peak_lr"
    with pytest.raises(Diverged, match=told) as caught:
        batch = torch.zeros(2, 9)
        recorder.on_train_batch_end(SimpleNamespace(global_step=2), module, outputs, batch, 1)
    assert (caught.value.step, caught.value.last_checkpoint) == (7, 5)
    assert caught.value.lr == pytest.approx(0.007)
    assert not recorder.path.exists()
