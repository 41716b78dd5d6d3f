"""Tables from token to expert, each kind by what it promises."""

import pytest
import torch

from bam_lab.model import checkpoint
from bam_lab.model.hashing import balanced, clustered, dispersed, hash_table
from bam_lab.spec.routers import HashRouter
from bam_lab.upcycle.execute import upcycle
from tests.model.cases import DENSE, METHODS, model_of, text

VOCAB, EXPERTS = 210, 4
GENERATOR = torch.Generator().manual_seed(0)
BLOBS = torch.arange(VOCAB) % EXPERTS
EMBEDDING = torch.randn(EXPERTS, 16, generator=GENERATOR)[BLOBS] * 3
EMBEDDING = EMBEDDING + 0.1 * torch.randn(VOCAB, 16, generator=GENERATOR)


def table(kind, counts=None, seed=0, embedding=EMBEDDING):
    router = HashRouter(select="hash", kind=kind, table_seed=seed)
    return hash_table(router, EXPERTS, embedding, counts)


@pytest.mark.parametrize("kind", ["random", "balanced", "clustered", "dispersed"])
def test_a_table_can_be_made_again(kind):
    made = table(kind)
    assert made.dtype == torch.long and made.shape == (VOCAB,)
    assert set(made.tolist()) == set(range(EXPERTS))
    assert torch.equal(made, table(kind))


def test_the_seed_draws_the_random_table():
    assert not torch.equal(table("random"), table("random", seed=1))
    assert torch.equal(table("balanced"), table("balanced", seed=1))


def test_balanced_by_frequency():
    """A Zipf text: no expert reads more than the most frequent token beyond an even share."""
    counts = (1e6 / (1 + torch.randperm(VOCAB, generator=GENERATOR))).long()
    made = table("balanced", counts)
    loads = torch.zeros(EXPERTS).index_add(0, made, counts.float())
    assert (
        loads.max() - loads.min() <= 0.01 * loads.max() or loads.argmax() == made[counts.argmax()]
    )
    rest = loads[torch.arange(EXPERTS) != made[counts.argmax()]]
    assert rest.max() / rest.min() < 1.01
    assert table("balanced").tolist() == [i % EXPERTS for i in range(VOCAB)]


def test_greedy_by_hand():
    assert balanced(torch.tensor([1, 5, 3, 3]), 2).tolist() == [0, 0, 1, 1]


def test_clusters_are_found_and_of_equal_size():
    """Four clouds; of 210 tokens no expert takes more than 53."""
    made = table("clustered")
    for blob in range(EXPERTS):
        own = made[blob == BLOBS]
        assert (own == own.mode().values).float().mean() > 0.9
    assert torch.bincount(made).max() <= 53


def test_a_full_cluster_passes_on():
    same = torch.zeros(10, 2)
    made = clustered(same, 2, torch.Generator().manual_seed(0))
    assert torch.bincount(made).tolist() == [5, 5]


def test_like_tokens_part():
    clusters = table("clustered")
    made = dispersed(clusters, EXPERTS)
    assert torch.equal(made, table("dispersed"))
    for cluster in range(EXPERTS):
        shares = torch.bincount(made[clusters == cluster], minlength=EXPERTS)
        assert shares.max() - shares.min() <= 1


def test_tables_are_kept_in_the_checkpoint(tmp_path):
    """As whole numbers, each layer its own copy, and a loaded model routes by them."""
    dense = [model_of(DENSE, seed=seed) for seed in range(EXPERTS)]
    method, spec = METHODS["btx-hash-clustered"], dense[0].spec
    states = [model.state_dict() for model in dense]
    state = upcycle(method, spec, states, torch.Generator().manual_seed(0))
    checkpoint.save(state, spec, method, EXPERTS, tmp_path)
    model = checkpoint.load(tmp_path)
    wanted = hash_table(method.ffn_router, EXPERTS, sum(s["embedding"] for s in states) / EXPERTS)
    for layer in model.layers:
        assert layer.ffn.hash.dtype == torch.long
        assert torch.equal(layer.ffn.hash, wanted)
    tokens = text()
    assert torch.equal(model(tokens).routings[1].ffn.chosen[..., 0], wanted[tokens])
