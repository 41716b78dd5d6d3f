"""Whole models from Python: averaged, side by side, and a Lory that goes on as a sparse mixture."""

import pytest
import torch

from bam_lab.methods import BTM, BTX, Average, Lory, module_of
from bam_lab.methods.dense import Dense
from bam_lab.spec.methods import AverageMethod
from bam_lab.train.optim import DEFAULTS
from tests.data.small_tokens import write_tokens
from tests.methods.test_methods import dense
from tests.model.cases import shape, text, top_k


def states(modules):
    return [module.model.state_dict() for module in modules]


def test_an_average_is_the_mean_of_every_tensor():
    experts = dense(3)
    mean = Average.from_experts(experts).model
    weighted = Average.from_experts(experts, weights=[1.0, 0.5, 2.5]).model
    for name, tensor in mean.state_dict().items():
        each = torch.stack([state[name] for state in states(experts)])
        torch.testing.assert_close(tensor, each.mean(0))
        shares = torch.tensor([1.0, 0.5, 2.5]).view(-1, *(1,) * (each.ndim - 1)) / 4
        torch.testing.assert_close(weighted.state_dict()[name], (each * shares).sum(0))
    assert isinstance(mean.method, AverageMethod)
    assert isinstance(module_of(mean, DEFAULTS), Dense)


@pytest.mark.parametrize("weights", [None, [3.0, 0.7, 1.1]])
def test_the_average_of_equals_is_that_model(weights):
    (expert,) = dense(1)
    mean = Average.from_experts([expert] * 3, weights=weights)
    for name, tensor in mean.model.state_dict().items():
        assert torch.equal(tensor, expert.model.state_dict()[name]), name


def test_an_ensemble_reads_what_its_experts_were_trained_on(tmp_path):
    tokens_dir = write_tokens(tmp_path)
    seed_model = Dense.from_scratch(shape(vocab_size=5))
    experts = [seed_model, Dense.from_seed(seed_model)]
    ensemble = BTM.from_experts(experts, tokens_dir, [{"law": 1.0}, {"code": 1.0}], top_k=1)
    law = torch.tensor([[1, 2, 3, 1]])
    assert ensemble.model.posterior(law).argmax(-1).eq(0).all()
    assert ensemble.model.posterior(torch.full((1, 3), 4)).argmax(-1).eq(1).all()
    wanted = seed_model(law).log_softmax(-1)
    torch.testing.assert_close(ensemble(law), wanted)


def test_a_lory_goes_on_as_a_sparse_mixture():
    lory = Lory.from_experts(dense(), segment_len=10)
    sparse = BTX.from_lory(lory, ffn_router=top_k(1))
    assert sparse.model.num_experts == lory.model.num_experts
    assert sparse.model.state_dict().keys() == lory.model.state_dict().keys()
    for name, tensor in sparse.model.state_dict().items():
        assert torch.equal(tensor, lory.model.state_dict()[name]), name
    assert not torch.allclose(sparse(text()), lory(text()))
    router = top_k(1).model_copy(update={"bias_rate": 0.001})
    biased = BTX.from_lory(lory, ffn_router=router)
    torch.testing.assert_close(biased(text()), sparse(text()))
