"""A batch spread over two processes, over passes, or both: the same tokens, the same training."""

import os
import socket
import subprocess
import sys

import numpy as np
import pytest
import torch

from bam_lab.data.tokens.batches import Batches
from bam_lab.data.tokens.datamodule import BatchesDataModule, Spread
from bam_lab.errors import InputError
from bam_lab.methods import BTX, Dense
from bam_lab.record import metrics
from bam_lab.train.fit import fit
from bam_lab.train.optim import Training
from tests.data.random_tokens import write_domain, write_manifest
from tests.model.cases import FFN_ROUTERS, shape
from tests.train.one_rank import MIX, SEQ_LEN, SEQUENCES, STEPS, scenarios, train

RANKS = 2


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    folder, random = tmp_path_factory.mktemp("tokens"), np.random.default_rng(0)
    for number, domain in enumerate(MIX):
        write_domain(folder, domain, random.integers(1, 60, 80), np.zeros(80), rng_seed=number)
    write_manifest(folder, ["s"], MIX)
    return folder


@pytest.fixture(scope="module")
def alone(tokens, tmp_path_factory):
    """One process: scenario -> (state, inputs of each pass), and its folder."""
    folder = tmp_path_factory.mktemp("alone")
    return scenarios(tokens, folder, ranks=1), folder


@pytest.fixture(scope="module")
def ranked(tokens, tmp_path_factory):
    """Two processes, by gloo: for each the same."""
    folder = tmp_path_factory.mktemp("ranked")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    shared = {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, "-m", "tests.train.one_rank", str(tokens), str(folder)]
    processes = [
        subprocess.Popen(command, env=os.environ | shared | {"LOCAL_RANK": str(rank)})
        for rank in range(RANKS)
    ]
    try:
        assert [process.wait(timeout=300) for process in processes] == [0] * RANKS
    finally:
        for process in processes:
            process.kill()
    states = [torch.load(folder / f"rank{rank}.pt", weights_only=True) for rank in range(RANKS)]
    return states, folder


def batch(tokens, step):
    return torch.from_numpy(Batches(tokens, MIX, SEQUENCES, SEQ_LEN, 3).batch(step)[:, :-1])


@pytest.mark.parametrize(("scenario", "passes"), [("whole", 1), ("passes", 2)])
def test_ranks_and_passes_read_the_rows_of_each_batch_in_order(
    tokens, alone, ranked, scenario, passes
):
    for seen in ([alone[0][scenario][1]], [rank[scenario][1] for rank in ranked[0]]):
        assert all(len(own) == STEPS * passes for own in seen)
        for step in range(STEPS):
            parts = [
                own[step * passes + index] for index in range(passes) for own in seen
            ]  # pass by pass, in it rank by rank
            assert torch.equal(torch.cat(parts), batch(tokens, step))


@pytest.mark.parametrize("scenario", ["resumed", "passes-resumed"])
def test_a_resumed_rank_goes_on_with_the_batch_that_is_due(tokens, alone, ranked, scenario):
    """Killed in step 5, resumed from the checkpoint of step 3."""
    passes = 1 + scenario.startswith("passes")
    for seen in ([alone[0][scenario][1]], [rank[scenario][1] for rank in ranked[0]]):
        assert all(len(own) == (STEPS - 3) * passes for own in seen)
        first = torch.cat([own[index] for index in range(passes) for own in seen])
        assert torch.equal(first, batch(tokens, 3))


@pytest.mark.parametrize(
    ("scenario", "whole"), [("resumed", "whole"), ("passes-resumed", "passes")]
)
def test_resumed_ends_in_the_same_bits(alone, ranked, scenario, whole):
    for found in (alone[0], *ranked[0]):
        for name, tensor in found[whole][0].items():
            assert torch.equal(found[scenario][0][name], tensor), name


@pytest.mark.parametrize("scenario", ["whole", "passes"])
def test_training_is_that_of_one_process(alone, ranked, scenario):
    """To rounding: a mean of means over equal parts is the mean. Ranks agree to the bit."""
    wanted = alone[0]["whole"][0]
    assert all(
        torch.equal(ranked[0][0][scenario][0][n], ranked[0][1][scenario][0][n]) for n in wanted
    )
    for found in (alone[0], *ranked[0]):
        for name, tensor in found[scenario][0].items():
            torch.testing.assert_close(tensor, wanted[name], rtol=1e-4, atol=SPREAD_ATOL, msg=name)


SPREAD_ATOL = 2e-5
"""Adam divides by the root of small second moments, which makes rounding larger."""


@pytest.mark.parametrize("scenario", ["whole", "passes", "killed", "pk"])
def test_the_record_is_of_whole_batches(alone, ranked, scenario):
    wanted = metrics.read(alone[1] / "whole" / metrics.NAME)
    assert [row["tokens"] for row in wanted] == [
        SEQUENCES * SEQ_LEN * i for i in range(2, STEPS + 1, 2)
    ]
    for folder in (alone[1], ranked[1]):
        rows = metrics.read(folder / scenario / metrics.NAME)
        for key in ("step", "tokens", "lr"):
            assert [row[key] for row in rows] == [row[key] for row in wanted]
        for key in ("loss", "grad_norm", "loss_max", "grad_norm_mean", "grad_norm_max"):
            torch.testing.assert_close(
                torch.tensor([row[key] for row in rows]),
                torch.tensor([row[key] for row in wanted]),
                rtol=1e-4,
                atol=1e-4,
            )


@pytest.mark.parametrize(("ranks", "accumulate"), [(1, 3), (1, 0), (3, 1), (2, 4)])
def test_a_batch_that_does_not_divide_is_refused(tokens, ranks, accumulate):
    batches = Batches(tokens, MIX, SEQUENCES, SEQ_LEN, 3)
    with pytest.raises(InputError, match=f"multiple of ranks x accumulate, got 4 for {ranks} x"):
        BatchesDataModule(batches, 1, spread=Spread(ranks, 0, accumulate))


def test_passes_that_do_not_divide_a_batch_train_nothing(tokens, tmp_path):
    with pytest.raises(InputError, match="multiple of ranks x accumulate, got 4 for 1 x 3"):
        train(tokens, tmp_path, accumulate=3)


def test_ranks_that_nobody_started_are_refused(tokens, tmp_path, monkeypatch):
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    with pytest.raises(InputError, match=r"got 2 where WORLD_SIZE is 1\. .*torchrun"):
        train(tokens, tmp_path, ranks=2)


@pytest.mark.parametrize("router", ["top-2-bias", "relu"])
def test_what_moves_by_whole_batches_is_refused(tokens, tmp_path, router):
    dense = [Dense.from_scratch(shape(), rng_seed=i) for i in range(4)]
    training = Training(2, 1e-2, 1)
    module = BTX.from_experts(
        dense, ffn_router=FFN_ROUTERS[router], allow_unrelated=True, training=training
    )
    batches = Batches(tokens, MIX, SEQUENCES, SEQ_LEN, 3)
    fixed = {"precision": "float32", "device": "cpu", "threads": 1, "checkpoint_every": 1}
    with pytest.raises(InputError, match=r"must be 1 where the method moves biases.*1 and 2 with"):
        fit(module, batches, workdir=tmp_path, accumulate=2, **fixed)


def test_each_part_draws_its_own_noise():
    parts = [Spread(2, rank, 3).part(index) for index in range(3) for rank in range(2)]
    assert parts == [0, 1, 2, 3, 4, 5]
    assert Spread().part(17) == 0
