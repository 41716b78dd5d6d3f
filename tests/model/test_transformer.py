"""Construction, initialisation, disk."""

import pytest
import torch

from bam_lab.model import checkpoint
from bam_lab.model.transformer import Transformer, initialise
from bam_lab.spec.model import ModelSpec
from tests.model.cases import DENSE, EXPERTS, METHODS, SOFT, bam, model_of, shape, text


def test_two_billion_parameters_on_meta_cost_nothing():
    """BAM's large model (arXiv:2408.08274, table 8): 6,195,886,848 in all with KV experts."""
    spec = ModelSpec(
        schema=1,
        vocab_size=256_000,
        dim=2304,
        num_layers=18,
        num_heads=18,
        num_kv_heads=6,
        head_dim=128,
        ffn_dim=9216,
        max_seq_len=2048,
        block="parallel",
        tie_embeddings=True,
    )
    with torch.device("meta"):
        model = Transformer(spec, bam("per_expert", SOFT), EXPERTS)
    assert sum(p.numel() for p in model.parameters()) == 6_195_886_848
    assert {p.device.type for p in model.parameters()} == {"meta"}


def test_initialisation_is_the_generators():
    one, same, other = (model_of(METHODS["bam-shared-soft"], seed=seed) for seed in (0, 0, 1))
    for (name, a), b, c in zip(
        one.named_parameters(), same.parameters(), other.parameters(), strict=True
    ):
        assert torch.equal(a, b), name
        assert name.endswith("norm") == torch.equal(a, c), name


def test_initialisation_has_the_stated_spread():
    method = METHODS["btx-top-1"].model_copy(update={"router_init_std": 0.07})
    spec = shape(dim=128, vocab_size=300, init_std=0.03)
    model = initialise(Transformer(spec, method, EXPERTS), torch.Generator().manual_seed(0))
    assert model.embedding.detach().std() == pytest.approx(0.03, rel=0.05)
    assert model.layers[0].ffn.router.detach().std() == pytest.approx(0.07, rel=0.1)
    assert (model.final_norm == 1).all()


@pytest.mark.parametrize("method", METHODS)
def test_disk_round_trip(method, tmp_path):
    model = model_of(METHODS[method])
    checkpoint.save(model.state_dict(), model.spec, model.method, EXPERTS, tmp_path)
    again = checkpoint.load(tmp_path)
    assert (again.spec, again.method, again.num_experts) == (model.spec, model.method, EXPERTS)
    assert torch.equal(again(text()).hidden, model(text()).hidden)


def test_tied_embeddings_are_one_tensor():
    model = model_of(DENSE, tie_embeddings=True)
    assert "lm_head" not in model.state_dict()
    assert model.lm_head_weight is model.embedding


def test_longer_text_than_positions_is_refused():
    with pytest.raises(AssertionError, match="151 tokens exceed 150"):
        model_of(DENSE)(text(length=151))
