"""Training, interrupted and not: the same bits, rows and errors."""

import json
import math
import warnings
from dataclasses import replace

import lightning
import numpy as np
import pytest
import torch

from bam_lab.errors import InputError
from bam_lab.methods import BAM, BTX, Dense
from bam_lab.record import metrics
from bam_lab.train import resume
from bam_lab.train.callbacks import Diverged
from bam_lab.train.fit import fit
from bam_lab.train.optim import Training
from tests.model.cases import FFN_ROUTERS, shape

STEPS = 12


class FakeBatches:
    """Cut batches from a repeating text, as `data.batches.Batches` would."""

    batch_sequences, seq_len = 4, 40

    def __init__(self):
        self.asked = []

    def batch(self, index):
        self.asked.append(index)
        start = np.random.default_rng(index).integers(0, 20, (self.batch_sequences, 1))
        return (start + np.arange(self.seq_len + 1)) % 20


class Killed(Exception):
    pass


def module(steps=STEPS, **settings):
    training = Training(steps=steps, peak_lr=1e-2, warmup_steps=2, **settings)
    dense = [Dense.from_scratch(shape(), rng_seed=i) for i in range(2)]
    return BAM.from_experts(dense, kv="shared", allow_unrelated=True, training=training)


def run(workdir, made, precision="float32", die_at=None, **settings):
    def progress(at):
        if at.step == die_at:
            raise Killed

    workdir.mkdir(exist_ok=True)
    fixed = {"device": "cpu", "threads": 1, "checkpoint_every": 4, "log_every": 3}
    batches = FakeBatches()
    fitted = fit(
        made,
        batches,
        workdir=workdir,
        precision=precision,
        progress=progress,
        **(fixed | settings),
    )
    return fitted, batches.asked


def rows(workdir):
    measured = {"tokens_per_s"}
    return [
        {k: v for k, v in row.items() if k not in measured}
        for row in metrics.read(workdir / metrics.NAME)
    ]


@pytest.mark.parametrize("precision", ["float32", "bf16-mixed"])
@pytest.mark.parametrize("die_at", [1, 4, 7, 11])
def test_killed_and_resumed_ends_in_the_same_bits(tmp_path, precision, die_at):
    whole, parts = module(), module()
    run(tmp_path / "whole", whole, precision)
    with pytest.raises(Killed):
        run(tmp_path / "parts", parts, precision, die_at=die_at)
    again = module()
    fitted, asked = run(tmp_path / "parts", again, precision)
    kept = (die_at - 1) // 4 * 4  # Progress is told before the checkpoint of the same step.
    assert fitted.resumed_from == kept
    assert asked == list(range(kept, STEPS))
    for (name, a), b in zip(
        whole.model.state_dict().items(), again.model.state_dict().values(), strict=True
    ):
        assert torch.equal(a, b), name
    assert rows(tmp_path / "parts") == rows(tmp_path / "whole")


@pytest.mark.parametrize("name", ["sample-soft-first", "straight-through", "top-2-bias", "relu"])
def test_noise_and_biases_go_on_where_they_were(tmp_path, name):
    """A step's noise is the step's own; what no optimizer holds is resumed: biases, L1 weights."""

    def made():
        dense = [Dense.from_scratch(shape(), rng_seed=i) for i in range(4)]
        training = Training(steps=STEPS, peak_lr=1e-2, warmup_steps=2)
        return BTX.from_experts(
            dense, ffn_router=FFN_ROUTERS[name], allow_unrelated=True, training=training
        )

    whole, again = made(), made()
    run(tmp_path / "whole", whole)
    with pytest.raises(Killed):
        run(tmp_path / "killed", made(), die_at=7)
    run(tmp_path / "killed", again)
    assert rows(tmp_path / "killed") == rows(tmp_path / "whole")
    wanted = whole.model.state_dict()
    for tensor_name, tensor in again.model.state_dict().items():
        assert torch.equal(tensor, wanted[tensor_name]), tensor_name
    if name == "top-2-bias":
        assert all(layer.ffn.bias.abs().max() > 0.001 for layer in again.model.layers)
    if name == "relu":
        assert again.model.l1_weight > 2e-8


def stretches(folder, made, ends=((5, 0), (8, 0), (STEPS, 4)), **settings):
    """Train the phase in stretches of (last step, steps that decay), each from the one before."""
    state = None
    for last, decay in ends:
        module = made(steps=last, decay_steps=decay)
        fitted, asked = run(folder / str(last), module, before=state, **settings)
        first = state.step if state else 0
        assert (fitted.steps, fitted.tokens) == (last - first, (last - first) * 160)
        assert asked == list(range(first, last))
        state = resume.load(folder / str(last))
    return module


def made_of_four(router):
    def made(**settings):
        dense = [Dense.from_scratch(shape(), rng_seed=i) for i in range(4)]
        training = Training(peak_lr=1e-2, warmup_steps=2, **settings)
        return BTX.from_experts(
            dense, ffn_router=FFN_ROUTERS[router], allow_unrelated=True, training=training
        )

    return made


@pytest.mark.parametrize(
    ("made", "precision"),
    [
        (module, "float32"),
        (module, "bf16-mixed"),
        (made_of_four("sample-soft-first"), "float32"),
        (made_of_four("top-2-bias"), "float32"),
        (made_of_four("relu"), "float32"),
    ],
)
def test_a_stable_run_in_pieces_ends_in_the_bits_of_one_run(tmp_path, made, precision):
    whole = made(steps=STEPS, decay_steps=4)
    run(tmp_path, whole, precision, log_every=1)
    last = stretches(tmp_path, made, precision=precision, log_every=1)
    wanted = whole.model.state_dict()
    for name, tensor in last.model.state_dict().items():
        assert torch.equal(tensor, wanted[name]), name
    pieces = [row for end in (5, 8, STEPS) for row in rows(tmp_path / str(end))]
    assert pieces == rows(tmp_path)


def test_a_killed_piece_goes_on_from_its_own_checkpoint(tmp_path):
    whole = module(steps=STEPS, decay_steps=4)
    run(tmp_path, whole)
    first = tmp_path / "first"
    run(first, module(steps=5, decay_steps=0))
    state = resume.load(first)
    last = {"before": state, "checkpoint_every": 3}
    with pytest.raises(Killed):
        run(tmp_path / "last", module(steps=STEPS, decay_steps=4), die_at=10, **last)
    again = module(steps=STEPS, decay_steps=4)
    fitted, asked = run(tmp_path / "last", again, **last)
    assert (fitted.steps, fitted.resumed_from, asked) == (7, 9, [9, 10, 11])
    assert torch.equal(whole.model.embedding, again.model.embedding)


def test_a_piece_without_the_optimizers_state_is_another_run(tmp_path):
    """The test of bits can fail: the weights alone are not where a run stands."""
    whole = module(steps=STEPS, decay_steps=4)
    run(tmp_path, whole)
    first, last = module(steps=8, decay_steps=0), module(steps=STEPS, decay_steps=4)
    run(tmp_path / "first", first)
    fresh = last.configure_optimizers().state_dict()
    run(tmp_path / "last", last, before=replace(resume.load(tmp_path / "first"), optimizer=fresh))
    assert not torch.equal(whole.model.embedding, last.model.embedding)


def test_killed_twice(tmp_path):
    whole = module()
    run(tmp_path / "whole", whole)
    for die_at in (5, 9):
        with pytest.raises(Killed):
            run(tmp_path / "parts", module(), die_at=die_at)
    last = module()
    assert run(tmp_path / "parts", last)[0].resumed_from == 8
    assert torch.equal(whole.model.embedding, last.model.embedding)


def test_a_finished_phase_trains_no_more(tmp_path):
    first, second = module(), module()
    once, _ = run(tmp_path, first)
    fitted, asked = run(tmp_path, second)
    assert asked == []
    assert fitted.resumed_from == STEPS
    assert fitted.seconds == pytest.approx(once.seconds, rel=0.5)
    assert torch.equal(first.model.embedding, second.model.embedding)


def test_rows(tmp_path):
    made = module()
    fitted, asked = run(tmp_path, made, validate=lambda: {"law": 1.5}, validate_every=6)
    assert asked == list(range(STEPS))
    assert (fitted.steps, fitted.tokens, fitted.resumed_from) == (STEPS, STEPS * 160, 0)
    written = metrics.read(tmp_path / metrics.NAME)
    trained = [row for row in written if "valid" not in row]
    assert [row["step"] for row in trained] == [3, 6, 9, 12]
    assert [row["tokens"] for row in trained] == [480, 960, 1440, 1920]
    assert [row for row in written if "valid" in row] == [
        {"step": 6, "valid": {"law": 1.5}},
        {"step": 12, "valid": {"law": 1.5}},
    ]
    for row in trained:
        assert row["lr"] == made.training_settings.lr(row["step"] - 1)
        assert {"loss", "balance_loss_ffn", "z_loss", "grad_norm", "tokens_per_s"} <= set(row)
    assert trained[-1]["loss"] < trained[0]["loss"] - 0.3  # It learns.


def test_a_row_is_the_mean_of_its_steps(tmp_path):
    run(tmp_path / "each", module(), log_every=1)
    run(tmp_path / "three", module(), log_every=3)
    each = [row["loss"] for row in rows(tmp_path / "each")]
    three = [row["loss"] for row in rows(tmp_path / "three")]
    assert three == pytest.approx([sum(each[i : i + 3]) / 3 for i in range(0, STEPS, 3)])


def test_a_row_keeps_the_largest_step_and_the_mean_norm(tmp_path):
    run(tmp_path / "each", module(), log_every=1)
    run(tmp_path / "three", module(), log_every=3)
    each, three = (metrics.read(tmp_path / name / metrics.NAME) for name in ("each", "three"))
    steps = {name: [row[name] for row in each] for name in ("loss", "grad_norm")}
    assert all(len(set(values)) == STEPS for values in steps.values())
    for start, row in zip(range(0, STEPS, 3), three, strict=True):
        losses, norms = (steps[name][start : start + 3] for name in ("loss", "grad_norm"))
        assert row["loss_max"] == max(losses)
        assert row["grad_norm_max"] == max(norms)
        assert row["grad_norm_mean"] == pytest.approx(sum(norms) / 3)
        assert row["grad_norm"] == norms[-1]
    for row in each:
        assert row["loss_max"] == row["loss"]
        assert row["grad_norm_mean"] == row["grad_norm_max"] == row["grad_norm"]


def watched(made, asked):
    """Return a watch of the embedding, whose churn is how far it moved."""

    def watch(before):
        asked.append(sorted(before))
        now = made.model.embedding.detach().clone()
        churn = {"ffn": float((before["ffn.0"] - now).abs().sum())} if before else {}
        return churn, {"ffn.0": now}

    return {"watch": watch, "validate": lambda: {"law": 1.5}, "validate_every": 3}


@pytest.mark.parametrize("die_at", [5, 7, 10])
def test_churn_goes_on_from_the_validation_before(tmp_path, die_at):
    """Validations at 3, 6, 9 and 12, checkpoints at 4, 8 and 12."""
    asked, whole = [], module()
    run(tmp_path / "whole", whole, **watched(whole, asked))
    assert asked == [[], ["ffn.0"], ["ffn.0"], ["ffn.0"]]
    valid = [row for row in rows(tmp_path / "whole") if "valid" in row]
    assert ["churn" in row for row in valid] == [False, True, True, True]
    assert all(row["churn"]["ffn"] > 0 for row in valid[1:])
    killed, again = module(), module()
    with pytest.raises(Killed):
        run(tmp_path / "parts", killed, die_at=die_at, **watched(killed, []))
    run(tmp_path / "parts", again, **watched(again, []))
    assert rows(tmp_path / "parts") == rows(tmp_path / "whole")


def test_churn_goes_on_in_the_next_stretch(tmp_path):
    first, last, asked = module(steps=6, decay_steps=0), module(steps=9, decay_steps=3), []
    run(tmp_path / "first", first, **watched(first, []))
    state = resume.load(tmp_path / "first")
    run(tmp_path / "last", last, before=state, **watched(last, asked))
    assert asked == [["ffn.0"]]
    assert rows(tmp_path / "last")[-1]["churn"]["ffn"] > 0


def test_the_rate_follows_the_schedule_step_by_step(tmp_path):
    """AdamW's first update is the rate times the gradient's sign, so the rate shows."""
    made = module(steps=1, weight_decay=0.0)
    before = made.model.embedding.detach().clone()
    run(tmp_path, made)
    moved = (made.model.embedding.detach() - before).abs().max()
    assert moved == pytest.approx(made.training_settings.lr(0), rel=1e-3)


def test_gradients_are_clipped(tmp_path):
    made = module(grad_clip=1e-9)
    before = made.model.lm_head.detach().clone()
    run(tmp_path, made)
    assert made.grad_norm > 0.01
    clipped = sum(float((p.grad**2).sum()) for p in made.model.parameters()) ** 0.5
    assert clipped < 1.1e-9
    assert not torch.equal(made.model.lm_head, before)  # Weight decay still acts.


def test_lost_loss_stops_with_step_rate_and_checkpoint(tmp_path):
    made = module()

    def poison(at_step):
        forward = made.model.forward
        seen = []

        def poisoned(tokens, draw):
            seen.append(1)
            output = forward(tokens, draw)
            if len(seen) == at_step:
                return output._replace(hidden=output.hidden * math.nan)
            return output

        made.model.forward = poisoned

    poison(7)
    with pytest.raises(Diverged, match=r"at step 7 .*last good checkpoint: step 4") as error:
        run(tmp_path, made)
    assert (error.value.step, error.value.last_checkpoint) == (7, 4)
    assert error.value.lr == made.training_settings.lr(6)
    assert resume.load(tmp_path).step == 4
    for line in (tmp_path / metrics.NAME).read_text().splitlines():
        assert math.isfinite(json.loads(line)["loss"])


def test_lost_loss_before_any_checkpoint(tmp_path):
    made = module()
    with torch.no_grad():
        made.model.embedding.fill_(math.nan)
    with pytest.raises(Diverged, match="last good checkpoint: none"):
        run(tmp_path, made)


def test_nothing_half_written(tmp_path, monkeypatch):
    """Dying inside the write leaves the checkpoint before."""
    run(tmp_path, module(steps=4), checkpoint_every=4)
    before = (tmp_path / resume.NAME).read_bytes()

    def torn(state, file):
        file.write(b"half")
        raise Killed

    monkeypatch.setattr(torch, "save", torn)
    state = resume.load(tmp_path)
    with pytest.raises(Killed):
        resume.save(state, tmp_path)
    assert (tmp_path / resume.NAME).read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {resume.NAME, metrics.NAME}


def test_pickled_code_is_not_run(tmp_path):
    torch.save({"step": Killed}, tmp_path / resume.NAME)
    with pytest.raises(InputError, match=r"resume\.pt is damaged") as refused:
        resume.load(tmp_path)
    assert "weights_only" in str(refused.value.__context__.__context__)


def test_it_is_quiet(tmp_path, capfd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(tmp_path, module(steps=2))
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


def test_a_trainer_of_ones_own(tmp_path):
    """The modules are plain LightningModules: schedule and clipping need nothing of ours."""
    made = module(steps=3)
    loader = torch.utils.data.DataLoader(
        [torch.from_numpy(FakeBatches().batch(i)) for i in range(3)], batch_size=None
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = lightning.Trainer(
            max_steps=3,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            accelerator="cpu",
        )
        trainer.fit(made, loader)
    assert trainer.optimizers[0].param_groups[0]["lr"] == made.training_settings.lr(2)
