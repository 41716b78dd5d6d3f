"""The register of runs whose arms differ in method: each line names what each arm took."""

import pytest

from bam_lab.report.assumptions import register
from bam_lab.report.collect import collect
from tests.report.fake_store import ARMS, Fake, make_store

TOP_2 = {"score": "softmax", "select": "top_k", "top_k": 2, "renormalize": False}
SPARSE = {
    "method": "sparse_upcycling",
    "num_experts": 4,
    "layers": "all",
    "copy_noise_std": 0.0,
    "ffn_router": TOP_2,
}


@pytest.fixture(autouse=True)
def nothing_is_measured(monkeypatch):
    """The methods here are what a line reads, not whole ones that have a cost."""
    monkeypatch.setattr("bam_lab.report.collect.measures_of", lambda *_: ())


def lines(tmp_path, **arms):
    index = make_store(tmp_path, Fake(arms={"btx": ARMS["btx"], **arms}))
    return {line.subject: line for line in register(collect(tmp_path, index))}


def test_a_run_without_a_method_has_no_line_of_it(tmp_path):
    found = lines(tmp_path)
    assert not [subject for subject in found if subject.startswith(("Sparse", "Lory"))]
    rest = found["Everything that is not an expert or a router"]
    assert rest.value == "uniform mean of the dense models"


def test_routers(tmp_path):
    switch = TOP_2 | {"capacity_factor": 1.5, "bias_rate": 0.001}
    sample = {"select": "sample", "estimator": "soft_value", "soft_first_layer": True}
    choice = {
        "select": "expert_choice",
        "capacity_factor": 2.0,
        "inference_top_k": 1,
        "group": "batch",
        "renormalize": True,
    }
    hashed = {"select": "hash", "kind": "clustered"}
    relu = {"score": "relu", "select": "all", "active_experts": 2, "l1_init": 1e-8}
    routers = {"switch": switch, "sample": sample, "choice": choice, "hash": hashed, "relu": relu}
    found = lines(tmp_path, **{n: {"method": "btx", "ffn_router": r} for n, r in routers.items()})
    gates = found["FFN gate: order of softmax and top-k"].value
    for words in (
        "softmax, then top-k, k = 2, chosen with a bias that moves by 0.001 a step (switch)",
        "Gumbel-softmax sample of one (soft_value), soft in the first layer (sample)",
        "softmax, then each expert's top tokens of the batch, gates divided by their sum (choice)",
        "1, by a clustered hash of the token (hash)",
        "none: relu of the logits (relu)",
    ):
        assert words in gates
    assert found["Capacity factor of experts"].value == (
        "none: no token is dropped (btx, sample, hash, relu); 1.5: more is dropped, in training "
        "alone (switch); 2, chosen by experts (choice)"
    )
    held_out = found["Held-out text where training samples or experts choose"]
    assert held_out.value == (
        "the likeliest expert, gate 1 (sample); each token's 1 likeliest (choice)"
    )
    sparsity = found["ReLU gates: target, coefficient of the L1 loss"]
    assert sparsity.value == "2 open a token; 1e-08, times 1.2"
    assert found["ReLU gates of an upcycled model at step 0"].value == "as drawn"
    assert found["Hash tables"].value == "clustered, the same in every layer"


def test_sparse_upcycling(tmp_path):
    found = lines(tmp_path, sparse=SPARSE)
    layers = found["Sparse Upcycling: layers that become mixtures"]
    assert (layers.value, layers.basis) == ("all", "ours")
    assert layers.why == "departs from the stated every_other"
    noise = found["Sparse Upcycling: noise on copies, standard deviation"]
    assert (noise.value, noise.basis) == ("0.0", "stated")
    assert found["Everything that is not an expert or a router"].value == (
        "uniform mean of the dense models (btx); the seed model's, as it is (sparse)"
    )


LORY = {"method": "lory", "segment_len": 64, "num_experts": None}


def test_lory(tmp_path):
    own, uniform = ({**LORY, "first_segment": f} for f in ("own_mean", "uniform"))
    found = lines(tmp_path, own=own, uniform={**uniform, "num_experts": 4})
    assert found["Lory: segment length"].value == "64"
    first = found["Lory: routing of the first segment"]
    assert first.value == "own_mean (own); uniform (uniform)"
    assert "its tokens see later ones of the segment, in training and in scoring" in first.place
    held_out = found["Lory: routing of held-out text"]
    assert held_out.value == "again at every segment, as in training"
    assert found["Everything that is not an expert or a router"].value == (
        "uniform mean of the dense models (btx, own); the seed model's, as it is (uniform)"
    )


FROZEN = {"method": "bam", "kv": "shared", "frozen_experts": True}


def test_where_experts_come_from(tmp_path):
    split = {"method": "btx", "expert_layout": "split", "chunks": 2, "frozen_experts": True}
    copied = {"reinit_share": 0.5, "granularity": 2, "copied_experts": 3, "num_experts": 4}
    found = lines(
        tmp_path,
        split=split,
        fine={**SPARSE, **copied},
        scratch={**SPARSE, "start": "scratch", "granularity": 2},
        frozen={**FROZEN, "attention_router": {"select": "all"}},
        shared={"method": "btx", "shared_expert": True},
    )
    assert found["Experts cut from FFNs: how"].value == "each in 2"
    assert found["Copies cut in parts: factor on their output"].value == "2 on down"
    assert found["Channels of copies drawn anew"].value == "50% of each"
    assert found["Shared expert: width, start and weight"].value == (
        "ffn_dim, mean of the dense experts, 1; all down projections halved"
    )
    assert found["Experts that are not copied"].value == "1, normal init_std"
    assert found["Frozen experts: what trains beside them"].value == (
        "attention, embeddings, norms, routers (split); "
        "shared keys and values, embeddings, norms, routers (frozen)"
    )
    rest = found["Everything that is not an expert or a router"].value
    assert rest.endswith("drawn anew (scratch)")


def test_whole_trained_experts_have_no_line_of_their_making(tmp_path):
    started = (
        "Shared",
        "ReLU",
        "Experts cut",
        "Copies cut",
        "Channels of",
        "Experts that",
        "Frozen",
    )
    assert not [s for s in lines(tmp_path, sparse=SPARSE) if s.startswith(started)]


def test_what_arms_read(tmp_path):
    whole = {"general_share": 0.1, "general_repeats": None, "order": "random"}
    whole |= {"mix": {"general": 0.25, "code": 0.25, "law": 0.25, "math": 0.25}}
    data = {
        "btx": whole,
        "soft": whole | {"general_share": 0.125, "general_repeats": 8},
        "top-1": whole | {"mix": {"law": 0.75, "code": 0.25}, "order": {"traversal": "simple"}},
    }
    arms = {name: ARMS[name] for name in data}
    index = make_store(tmp_path, Fake(arms=arms, data=data))
    found = {line.subject: line for line in register(collect(tmp_path, index))}
    assert (
        found["General share in each branch's data mix"].value == "10% (btx, top-1); 12.5% (soft)"
    )
    often = found["How often a phase reads the same general text"].value
    assert often == "as often as the corpus makes necessary (btx, top-1); 8 times (soft)"
    assert "; code 25%, law 75% (top-1)" in found["Data mix of the mixture phase"].value
    order = found["Which documents share a sequence, after the seed model"].value
    assert order == "random (btx, soft); similar order (simple) (top-1)"


def test_results_from_before_arms_had_data_say_the_recipes(tmp_path):
    found = lines(tmp_path)
    share = found["General share in each branch's data mix"]
    assert (share.value, share.basis) == ("10%", "stated")
    assert found["Data mix of the mixture phase"].basis == "stated"


def test_a_line_that_settings_change_says_each(tmp_path):
    settings = {
        "parallel": {"model": {"norm": "rms"}},
        "serial": {"model": {"norm": "layer"}},
    }
    fake = Fake(settings=settings)
    found = {line.subject: line for line in register(collect(tmp_path, make_store(tmp_path, fake)))}
    assert found["Norm"].value == (
        "RMSNorm, epsilon 1e-05 (under parallel); "
        "LayerNorm without bias, epsilon 1e-05 (under serial)"
    )
    routers = found["FFN gate: order of softmax and top-k"].value
    assert "under" not in routers and "@" not in routers
