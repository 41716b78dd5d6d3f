"""Bytes sent: by arithmetic, and as gloo really sends them between processes."""

import json
import os
import socket
import subprocess
import sys

import pytest
import torch

from bam_lab.cost.communication import gradients_per_step, group_size, per_step
from bam_lab.cost.lora import lora_params
from bam_lab.cost.params import count, frozen_params
from bam_lab.hf.lora import attach
from bam_lab.model.transformer import Transformer
from bam_lab.spec.branches import LoRASpec
from bam_lab.spec.methods import AverageMethod
from tests.cost.one_device import EXPERTS, SEQUENCES, SHAPE
from tests.cost.shapes import BTX, CHOICE, DENSE, KV_EXPERTS, KV_SHARING, LORY, SMALL, TOP_2

DEVICES = 4
HEADERS = 0.01
"""What gloo and barriers add; measured 0.1%."""
BTX_2 = BTX.model_copy(update={"ffn_router": TOP_2})


@pytest.fixture(scope="module")
def sent(tmp_path_factory):
    """Scenario -> the bytes that all devices wrote to their sockets."""
    folder = tmp_path_factory.mktemp("sent")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    shared = {"WORLD_SIZE": str(DEVICES), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    shared |= {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.cost.one_device", str(folder)]
    processes = [
        subprocess.Popen(command, env=os.environ | shared | {"LOCAL_RANK": str(rank)})
        for rank in range(DEVICES)
    ]
    try:
        assert [process.wait(timeout=300) for process in processes] == [0] * DEVICES
    finally:
        for process in processes:
            process.kill()
    found = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(DEVICES)]
    return {name: sum(device[name] for device in found) for name in found[0]}


def step(method, devices=DEVICES, group=None):
    experts = 1 if method == DENSE else EXPERTS
    return per_step(SHAPE, method, experts, SEQUENCES, devices, group)


def test_gradients_as_gloo_sends_them(sent):
    assert step(DENSE).tokens == 0
    assert sent["dense"] == pytest.approx(step(DENSE).gradients, rel=HEADERS)


@pytest.mark.parametrize(
    ("method", "scenarios"),
    [
        (BTX, ["top-1"]),
        (BTX_2, ["top-2"]),
        (KV_EXPERTS, ["top-1", "top-4"]),
        (KV_SHARING, ["top-1", "top-4"]),
        (LORY, ["merged"]),
    ],
)
def test_tokens_as_gloo_sends_them(sent, method, scenarios):
    wanted = sum(sent[scenario] for scenario in scenarios)
    assert step(method).tokens == pytest.approx(wanted, rel=HEADERS)


def test_experts_in_groups_as_gloo_sends_them(sent):
    in_groups = step(BTX_2, group=2)
    assert sent["top-2 in groups"] == pytest.approx(in_groups.tokens, rel=HEADERS)
    assert sent["btx in groups"] == pytest.approx(in_groups.gradients, rel=HEADERS)


def test_one_device_sends_nothing():
    assert step(BTX_2, devices=1).total == step(KV_EXPERTS, devices=1).total == 0


def test_what_is_not_trained_sends_nothing():
    assert per_step(SHAPE, AverageMethod(method="average"), 4, SEQUENCES, 8).total == 0


def test_without_groups_every_gradient_goes_to_all():
    total = count(SHAPE, BTX, EXPERTS).total
    assert step(BTX, group=1).total == 4 * 2 * (DEVICES - 1) * total


def test_frozen_experts_send_no_gradients():
    frozen = BTX.model_copy(update={"frozen_experts": True})
    spared = 4 * 2 * (DEVICES - 1) * frozen_params(SHAPE, frozen, EXPERTS)
    assert step(BTX, group=1).gradients - step(frozen, group=1).gradients == spared > 0
    assert step(frozen, group=2).gradients < step(BTX, group=2).gradients
    assert step(frozen).tokens == step(BTX).tokens


def test_tokens_follow_what_training_runs():
    choice = BTX.model_copy(update={"ffn_router": CHOICE})  # 1.5 experts a token in training
    assert step(choice).tokens == 1.5 * step(BTX).tokens
    top_2 = KV_EXPERTS.model_copy(update={"attention_router": TOP_2})
    # Every expert needs every token for its keys, but returns only the chosen ones.
    assert step(KV_EXPERTS).tokens - step(top_2).tokens == step(BTX).tokens


@pytest.mark.parametrize(
    ("experts", "devices", "size"), [(4, 8, 4), (6, 8, 2), (32, 8, 8), (3, 8, 1), (4, 1, 1)]
)
def test_groups(experts, devices, size):
    assert group_size(experts, devices) == size


def test_the_papers_small_model_on_8_devices():
    sent = per_step(SMALL, BTX, 4, 512, 8)
    spread, total = 6 * 4 * 3 * 1024 * 2048, count(SMALL, BTX, 4).total
    assert sent.gradients == 4 * (2 * 7 * (total - spread) + 2 * 1 * spread)
    # 6 layers, 2 there and 2 back, bf16, three of four devices are others
    assert sent.tokens == 6 * 4 * 2 * 1024 * 512 * 256 * 3 // 4


def test_adapters_send_their_own_gradients_alone():
    lora = LoRASpec(rank=8, alpha=16.0, targets=("ffn",))
    with torch.device("meta"):
        adapted = attach(Transformer(SHAPE, DENSE, 1), lora, 0)
    trained = sum(tensor.numel() for tensor in adapted.parameters() if tensor.requires_grad)
    assert lora_params(SHAPE, lora) == trained
    assert gradients_per_step(trained, 8) == 4 * 2 * 7 * trained
