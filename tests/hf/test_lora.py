"""Low-rank branches: nothing at first, whole after merging, and what their training runs."""

from copy import deepcopy

import pytest
import torch

from bam_lab.cost.lora import lora_per_token
from bam_lab.hf.lora import attach, merge
from bam_lab.methods import BTX, Dense, module_of
from bam_lab.model.losses import next_token_loss
from bam_lab.model.trace import counted_flops
from bam_lab.spec.branches import LoRASpec
from bam_lab.train.fit import fit
from bam_lab.train.optim import Training
from tests.model.cases import DENSE, model_of, text
from tests.train.test_fit import FakeBatches

TARGETS = (("ffn",), ("ffn", "attention"), ("attention",))
BLOCKS = ("parallel", "serial")


def lora(targets):
    return LoRASpec(rank=4, alpha=8.0, targets=targets)


def logits(model, tokens):
    return model.logits(model(tokens).hidden)


def step(model, tokens):
    loss = next_token_loss(model(tokens).hidden, model.lm_head_weight, tokens)
    loss.backward()


@pytest.mark.parametrize("targets", TARGETS)
@pytest.mark.parametrize("block", BLOCKS)
def test_at_first_it_is_the_seed_model(block, targets):
    model, tokens = model_of(DENSE, block), text(2, 64)
    before = logits(model, tokens)
    adapted = attach(deepcopy(model), lora(targets), 0)
    torch.testing.assert_close(logits(adapted, tokens), before)
    trained = [name for name, p in adapted.named_parameters() if p.requires_grad]
    matrices = sum({"ffn": 3, "attention": 4}[target] for target in targets)
    assert len(trained) == 2 * matrices * model.spec.num_layers
    assert all("lora_" in name for name in trained)


@pytest.mark.parametrize("targets", TARGETS)
@pytest.mark.parametrize("block", BLOCKS)
def test_merged_it_is_what_was_trained(block, targets):
    model, tokens = model_of(DENSE, block), text(2, 64)
    adapted = attach(deepcopy(model), lora(targets), 0)
    optimizer = torch.optim.AdamW([p for p in adapted.parameters() if p.requires_grad], lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        step(adapted, tokens)
        optimizer.step()
    trained = logits(adapted, tokens)
    assert not torch.allclose(trained, logits(model, tokens), atol=0.1)
    merged = merge(adapted)
    torch.testing.assert_close(logits(merged, tokens), trained)
    assert merged.state_dict().keys() == model.state_dict().keys()
    assert all(p.requires_grad for p in merged.parameters())
    for name, tensor in merged.state_dict().items():
        changed = name.rpartition(".")[0].rpartition(".")[2] in targets
        assert torch.equal(tensor, model.state_dict()[name]) != changed, name


@pytest.mark.parametrize("targets", TARGETS)
@pytest.mark.parametrize("block", BLOCKS)
def test_formula_equals_trace(block, targets):
    model, tokens = model_of(DENSE, block), text(2, 128)
    counted = lora_per_token(model.spec, lora(targets), 128, tokens.numel())
    adapted = attach(deepcopy(model), lora(targets), 0)
    ran = counted_flops(lambda: step(adapted, tokens))
    # Adapters are added once a step, so that the count of a token is rounded.
    assert abs(ran - tokens.numel() * counted.executed_training) <= tokens.numel()
    with torch.autocast("cpu", torch.bfloat16):
        assert counted_flops(lambda: step(adapted, tokens)) == ran
    thin = lora_per_token(model.spec, LoRASpec(rank=1, alpha=1.0, targets=targets), 128, 256)
    assert 2 * counted.model_forward < thin.model_training < 3 * counted.model_forward


def test_the_start_depends_on_the_seed_alone():
    a, b, c = (attach(model_of(DENSE), lora(("ffn",)), seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert any(not torch.equal(a[name], c[name]) for name in a)


class Stopped(Exception):
    pass


def test_interrupted_training_ends_in_the_same_bits(tmp_path):
    """Adapters, their optimizer and the step come back; the frozen weights stay what they were."""

    def run(workdir, die_at=None):
        workdir.mkdir(exist_ok=True)

        def progress(at):
            if at.step == die_at:
                raise Stopped

        training = Training(steps=8, peak_lr=1e-2, warmup_steps=2)
        module = module_of(attach(model_of(DENSE), lora(("ffn",)), 3), training)
        fixed = {"precision": "float32", "device": "cpu", "threads": 1, "checkpoint_every": 3}
        fit(module, FakeBatches(), workdir=workdir, progress=progress, **fixed)
        return merge(module.model).state_dict()

    whole = run(tmp_path / "whole")
    with pytest.raises(Stopped):
        run(tmp_path / "cut", die_at=5)
    again = run(tmp_path / "cut")
    assert all(torch.equal(whole[name], again[name]) for name in whole)


def test_a_branch_in_one_line():
    """Adapters that have moved, merged into a whole model that a mixture takes."""
    seed_model = Dense(model_of(DENSE), Training())
    branch = Dense.from_seed(seed_model, lora=lora(("ffn",)))
    optimizer, tokens = branch.configure_optimizers(), text(2, 64)
    step(branch.model, tokens)
    optimizer.step()
    whole = branch.merged()
    torch.testing.assert_close(logits(whole.model, tokens), logits(branch.model, tokens))
    assert set(whole.model.state_dict()) == set(seed_model.model.state_dict())
    mixture = BTX.from_experts([seed_model, whole])
    assert torch.equal(mixture.model.layers[0].ffn.gate[1], whole.model.layers[0].ffn.gate)
    assert not torch.equal(*mixture.model.layers[0].ffn.gate)
