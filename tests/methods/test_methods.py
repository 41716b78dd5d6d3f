"""One line from dense modules to a mixture, its defaults, and its loss."""

import pytest
import torch

from bam_lab.errors import SpecError
from bam_lab.methods import BAM, BTX, Dense, Lory, SparseUpcycling, module_of
from bam_lab.methods.btx import RELU, SAMPLE_TOP_1, SWITCH
from bam_lab.methods.sparse_upcycling import EXPERT_CHOICE
from bam_lab.model.hashing import balanced
from bam_lab.model.losses import next_token_loss
from bam_lab.spec.experts import expert_tensors
from bam_lab.spec.routers import BalanceLoss, HashRouter
from bam_lab.train.optim import DEFAULTS, Training, adamw
from tests.model.cases import EXPERTS, expert_choice, relu, sample, shape, text, top_k

LOGGED = ("entropy", "load_max", "load_min", "used")
"""What each router of experts logs at every step."""


def dense(count=EXPERTS):
    """Return branches of one model."""
    seed_model = Dense.from_scratch(shape())
    return [branch(seed_model, i) for i in range(count)]


def branch(seed_model, rng_seed):
    """Return a copy of a model that has moved, half as far as it is from 0."""
    made, generator = Dense.from_seed(seed_model), torch.Generator().manual_seed(rng_seed)
    with torch.no_grad():
        for parameter in made.model.parameters():
            parameter.add_(torch.empty_like(parameter).normal_(0, 0.1, generator=generator))
    return made


def test_btx_has_the_papers_defaults():
    method = BTX.from_experts(dense()).model.method
    assert method.ffn_router == top_k(2, renormalize=True)
    assert method.balance_loss == BalanceLoss(form="gates", weight=0.01)
    assert method.z_loss == 0


def test_the_papers_other_routers():
    assert top_k(1, capacity_factor=1.5) == SWITCH
    assert sample(soft_first_layer=True) == SAMPLE_TOP_1
    assert (SAMPLE_TOP_1.anneal_rate, SAMPLE_TOP_1.min_temperature) == (1e-4, 0.5)
    assert expert_choice(2.0, 2) == EXPERT_CHOICE
    module = BTX.from_experts(dense(), ffn_router=SWITCH)
    assert "dropped_ffn" in module.training_step(text(), 0)["metrics"]


@pytest.mark.parametrize("setting", [{"capacity_factor": 1.0}, {"bias_rate": 0.1}])
def test_attention_experts_have_no_limit_and_no_bias(setting):
    with pytest.raises(SpecError, match=f"attention_router must have no {next(iter(setting))}"):
        BAM.from_experts(dense(2), kv="shared", attention_router=top_k(1, **setting))


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_experts_are_refused(count):
    with pytest.raises(SpecError, match=f"experts must be two dense models or more, got {count}"):
        BTX.from_experts(dense(count), ffn_router=top_k(1))


def test_a_balanced_hash_reads_token_counts():
    counts = torch.randperm(61, generator=torch.Generator().manual_seed(0))
    router, experts = HashRouter(select="hash", kind="balanced"), dense()
    module = BTX.from_experts(experts, ffn_router=router, balance_loss=None, token_counts=counts)
    wanted = balanced(counts, EXPERTS)
    for layer in module.model.layers:
        assert torch.equal(layer.ffn.hash, wanted)
    parts = module.training_step(text(), 0)["metrics"]
    assert set(parts) == {"loss", *(f"{fact}_ffn" for fact in LOGGED)} and parts["entropy_ffn"] == 0


def test_a_training_step_moves_the_biases_and_scoring_does_not():
    module = BTX.from_experts(dense(), ffn_router=top_k(1, bias_rate=0.1), balance_loss=None)
    biases = [layer.ffn.bias for layer in module.model.layers]
    module(text())
    assert all((bias == 0).all() for bias in biases)
    module.training_step(text(), 0)
    assert all(bias.abs().max() == 0.1 for bias in biases)


def test_relu_gates_in_one_line():
    """Their facts are logged apart; a step moves the L1 weight after it was used."""
    module = BTX.from_experts(dense(), ffn_router=RELU)
    module(text())
    parts = module.training_step(text(), 0)["metrics"]
    facts = {*(f"{fact}_ffn" for fact in LOGGED), "dropped_ffn", "sparsity_ffn", "l1_weight"}
    assert set(parts) == {"loss", "l1_loss_ffn"} | facts
    assert 0.3 < parts["sparsity_ffn"] < 0.7  # wanted: 0.75
    assert float(parts["l1_weight"]) == pytest.approx(1e-8)
    assert float(module.model.l1_weight) == pytest.approx(1.2e-8)


def test_the_l1_loss_is_weighed_by_what_the_weight_was():
    module = BTX.from_experts(dense(), ffn_router=relu(1, l1_init=0.5))
    made = module.training_step(text(), 0)
    parts = made["metrics"]
    torch.testing.assert_close(made["loss"].detach(), parts["loss"] + 0.5 * parts["l1_loss_ffn"])
    made["loss"].backward()
    assert module.model.layers[0].ffn.router.grad.norm() > 0


def test_shared_experts_in_one_line():
    seed_model = Dense.from_scratch(shape())
    for module in (
        BTX.from_experts(dense(), shared_expert=True),
        SparseUpcycling.from_seed(seed_model, 3, shared_expert=True),
        SparseUpcycling.from_scratch(shape(), 3, shared_expert=True),
    ):
        assert module.model.layers[1].ffn.shared.gate.shape == (24, 16)
        assert module.training_step(text(), 0)["loss"] > 0


def test_a_step_draws_its_own_noise():
    """The same for a step that is done again, another for the next."""
    module = BTX.from_experts(dense(), ffn_router=SAMPLE_TOP_1, balance_loss=None)
    losses = []
    for step in (3, 3, 4):
        module.first_step = step
        losses.append(float(module.training_step(text(), 0)["loss"].detach()))
    assert losses[0] == losses[1] != losses[2]


@pytest.mark.parametrize("kv", ["shared", "per_expert"])
def test_bam_has_the_papers_defaults(kv):
    method = BAM.from_experts(dense(), kv=kv).model.method
    assert method.kv == kv
    assert method.attention_router.select == "all"
    assert method.ffn_router == top_k(1)
    assert method.balance_loss == BalanceLoss(form="tokens", weight=0.01)
    assert method.attention_balance_loss is None
    assert method.z_loss == 0.001


def test_sparse_upcycling_has_the_papers_defaults():
    model = SparseUpcycling.from_seed(Dense.from_scratch(shape()), 3).model
    method = model.method
    assert (method.layers, method.copy_noise_std, model.num_experts) == ("every_other", 0, 3)
    assert method.ffn_router == top_k(2)
    assert method.balance_loss == BalanceLoss(form="tokens", weight=0.01)
    assert method.z_loss == 0
    assert method.router_init_std == 0.02


@pytest.mark.parametrize("layers", ["last_2", "last_9"])
def test_sparse_upcycling_leaves_a_dense_layer_unless_it_takes_all(layers):
    seed_model = Dense.from_scratch(shape())
    with pytest.raises(SpecError, match=f"method.layers must leave a dense.*of 2, got {layers}"):
        SparseUpcycling.from_seed(seed_model, 4, layers=layers)


def test_lory_is_the_papers():
    method = Lory.from_experts(dense(), segment_len=50).model.method
    assert (method.segment_len, method.first_segment) == (50, "own_mean")
    module = Lory.from_seed(dense(1)[0], 3, segment_len=50, first_segment="uniform")
    assert module.model.num_experts == 3
    logged = set(module.training_step(text(), 0)["metrics"])
    assert logged == {"loss", *(f"{fact}_ffn" for fact in LOGGED)}


@pytest.mark.parametrize("segment_len", [40, 150])
def test_lory_needs_two_whole_segments(segment_len):
    with pytest.raises(
        SpecError, match=f"method.segment_len must divide max_seq_len 150.*{segment_len}"
    ):
        Lory.from_experts(dense(2), segment_len=segment_len)


def test_btx_lays_experts_out_as_asked():
    experts = dense(2)
    whole = BTX.from_experts(experts, expert_layout="split", chunks=3, ffn_router=top_k(4, True))
    assert whole.model.num_experts == 6
    assert whole.model.layers[0].ffn.gate.shape == (6, 8, 16)
    blended = BTX.from_experts(experts, expert_layout="blended").model
    assert torch.equal(blended.layers[1].ffn.up[0, 12:], experts[1].model.layers[1].ffn.up[:12])
    with pytest.raises(SpecError, match=r"method\.chunks must divide ffn_dim 24, got 5"):
        BTX.from_experts(experts, expert_layout="split", chunks=5)


@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_frozen_experts_keep_their_weights_through_a_step(decay):
    """Not even weight decay moves them; routers and what is below still train."""
    experts = dense(2)
    for module in (
        BTX.from_experts(experts, frozen_experts=True, training=Training(weight_decay=decay)),
        BAM.from_experts(experts, kv="per_expert", frozen_experts=True),
    ):
        frozen = expert_tensors(module.model.method, 2)
        before = {n: p.detach().clone() for n, p in module.model.named_parameters()}
        module.training_step(text(), 0)["loss"].backward()
        optimizer = adamw(module.model, module.training_settings)
        optimizer.step()
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        for name, parameter in module.model.named_parameters():
            assert torch.equal(parameter, before[name]) == (name in frozen), name
            assert (id(parameter) in held) == (name not in frozen), name


def test_copies_of_the_seed_model_need_not_be_whole():
    seed_model = Dense.from_scratch(shape())
    fine = SparseUpcycling.from_seed(
        seed_model, 3, layers="all", granularity=2, ffn_router=top_k(4, renormalize=True)
    )
    assert fine.model.layers[0].ffn.gate.shape == (6, 12, 16)
    torch.testing.assert_close(fine(text()), seed_model(text()))
    drop = SparseUpcycling.from_seed(seed_model, 3, layers="all", reinit_share=0.5)
    partly = SparseUpcycling.from_seed(seed_model, 3, layers="all", copied_experts=2)
    assert (drop.model.method.reinit_share, partly.model.method.copied_experts) == (0.5, 2)


def test_a_mixture_from_scratch_reads_no_model():
    module = SparseUpcycling.from_scratch(shape(), 3, rng_seed=1)
    method = module.model.method
    assert (method.start, method.layers, method.ffn_router) == ("scratch", "every_other", top_k(2))
    assert module.model.num_experts == 3
    gate = module.model.layers[1].ffn.gate
    assert not torch.equal(gate[0], gate[1])
    same, other = (SparseUpcycling.from_scratch(shape(), 3, rng_seed=s).model for s in (1, 2))
    assert torch.equal(same.layers[1].ffn.gate, gate)
    assert not torch.equal(other.layers[1].ffn.gate, gate)


def test_experts_stand_in_the_order_given():
    experts = dense(3)
    mixture = BAM.from_experts(experts, kv="per_expert").model
    assert mixture.num_experts == 3
    for i, expert in enumerate(experts):
        assert torch.equal(mixture.layers[0].attention.key[i], expert.model.layers[0].attention.key)


def test_rng_seed_draws_the_routers_only():
    experts = dense(2)
    one, same, other = (BTX.from_experts(experts, rng_seed=s).model for s in (0, 0, 1))
    for (name, a), b, c in zip(
        one.named_parameters(), same.parameters(), other.parameters(), strict=True
    ):
        assert torch.equal(a, b)
        assert torch.equal(a, c) != name.endswith("router")


def test_from_seed_makes_copies():
    seed_model = Dense.from_scratch(shape())
    mixture = BTX.from_seed(seed_model, 3, rng_seed=1)
    torch.testing.assert_close(mixture(text()), seed_model(text()))
    mixture = BAM.from_seed(seed_model, 2, kv="shared", ffn_router=top_k(2, True))
    torch.testing.assert_close(mixture(text()), seed_model(text()))


def test_a_branch_is_a_copy_with_its_own_weights():
    seed_model = Dense.from_scratch(shape())
    branch = Dense.from_seed(seed_model)
    with torch.no_grad():
        branch.model.embedding.zero_()
    assert seed_model.model.embedding.abs().sum() > 0


def test_the_loss_is_the_sum_of_its_parts_each_logged_apart():
    module = BAM.from_experts(dense(), kv="shared")
    batch = text()
    result = module.training_step(batch, 0)
    parts = result["metrics"]
    facts = {f"{fact}_{kind}" for fact in LOGGED for kind in ("ffn", "attention")}
    assert set(parts) == {"loss", "balance_loss_ffn", "z_loss"} | facts
    model = module.model
    nll = next_token_loss(model(batch[:, :-1]).hidden, model.lm_head_weight, batch[:, 1:])
    torch.testing.assert_close(parts["loss"], nll.detach())
    whole = parts["loss"] + 0.01 * parts["balance_loss_ffn"] + 0.001 * parts["z_loss"]
    torch.testing.assert_close(result["loss"].detach(), whole)
    assert not any(part.requires_grad for part in parts.values())


def test_weight_decay_is_for_matrices():
    module = BTX.from_experts(dense(), training=Training(weight_decay=0.3))
    optimizer = adamw(module.model, module.training_settings)
    decay = {id(p): g["weight_decay"] for g in optimizer.param_groups for p in g["params"]}
    for name, parameter in module.model.named_parameters():
        assert decay[id(parameter)] == (0.0 if name.endswith("norm") else 0.3), name


def test_module_of_a_model_is_its_method():
    experts = dense(2)
    for module in (
        experts[0],
        BTX.from_experts(experts),
        BAM.from_experts(experts, kv="shared"),
        SparseUpcycling.from_seed(experts[0], 2),
        Lory.from_experts(experts, segment_len=50),
    ):
        assert type(module_of(module.model, DEFAULTS)) is type(module)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda seed: Lory.from_seed(seed, 1, segment_len=50), r"num_experts must be >= 2, got 1"),
        (lambda seed: SparseUpcycling.from_seed(seed, 4, layers="some"), "layers must be all, ev"),
        (lambda seed: BTX.from_seed(seed, 4, z_loss=-1.0), r"z_loss must be >= 0.0, got -1.0"),
        (lambda seed: BAM.from_seed(seed, 4, kv="own"), "kv must be 'per_expert' or 'shared'"),
    ],
)
def test_wrong_values_in_code_are_told_as_in_a_spec(make, message):
    with pytest.raises(SpecError, match=message):
        make(Dense.from_scratch(shape()))
