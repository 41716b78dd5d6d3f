"""Routing measures on forced routes, by hand; against sklearn and scipy; and on every method."""

import math

import numpy as np
import pytest
import torch
from scipy import stats as scipy_stats
from sklearn.metrics import mutual_info_score

from bam_lab.data.tokens.encode import DOCUMENT
from bam_lab.evaluate.routing import homes_of, measure
from bam_lab.evaluate.routing_counts import (
    Place,
    count,
    decision_of,
    decisions_that_count,
    routings_of,
    serving,
)
from bam_lab.evaluate.routing_measures import (
    ALL,
    entropy,
    mutual_information,
    over_layers,
    rows_of,
)
from bam_lab.evaluate.routing_tokens import add_tokens, examples, no_tokens
from bam_lab.evaluate.routing_training import differs, training_rows
from bam_lab.model.block import LayerRouting
from bam_lab.model.facts import routing_facts
from bam_lab.model.router import Routing, everyone, limit, route_by_hash, top_k
from bam_lab.model.router import expert_choice as choose
from bam_lab.model.transformer import Output
from bam_lab.record.files import write_json
from bam_lab.spec.experts import has_bos
from bam_lab.spec.methods import LoryMethod, SegmentMoEMethod, SMEARMethod
from tests.model.cases import (
    DENSE,
    FFN_ROUTERS,
    METHODS,
    ROUTERS,
    SEGMENT,
    btx,
    expert_choice,
    model_of,
    text,
)

PLACE = Place(3, "ffn")
EVERY = torch.ones(1, 4, dtype=torch.bool)


def soft(gates) -> Routing:
    gates = torch.tensor(gates)
    return Routing(gates.log(), gates, everyone(gates))


def sent(experts, of=4) -> Routing:
    """Send each token of one row to the expert named for it, for certain."""
    return route_by_hash(torch.tensor([experts]), torch.arange(of), of)


def value(rows, metric, expert=ALL, domain=ALL, layer=3, router="ffn"):
    wanted = (layer, router, expert, domain, metric)
    keys = ("layer", "router", "expert", "domain", "metric")
    (found,) = (row["value"] for row in rows if tuple(row[key] for key in keys) == wanted)
    return found


def measured(homes=(None,) * 4, **routings):
    """Return the rows of one router from a routing of each domain, every place counted."""
    counts = {
        domain: count(routing, torch.ones(routing.logits.shape[:2], dtype=torch.bool))
        for domain, routing in routings.items()
    }
    return list(rows_of(PLACE, counts, homes))


def test_loads_are_shares_of_what_is_sent():
    rows = measured(law=sent([0, 0, 0, 1]), code=sent([2, 2, 1, 1]))
    assert [value(rows, "load", e, "law") for e in range(4)] == [0.75, 0.25, 0, 0]
    assert [value(rows, "load", e, "code") for e in range(4)] == [0, 0.5, 0.5, 0]
    assert [value(rows, "load", e) for e in range(4)] == [0.375, 0.375, 0.25, 0]
    assert value(rows, "load_max") == 0.375 and value(rows, "load_min") == 0
    assert value(rows, "dead") == 0.25
    assert value(rows, "used") == 0.75  # a hash's gate of 1 is above 2/4
    assert {row["n"] for row in rows if row["domain"] == "law"} == {4}


def test_domains_weigh_the_same_however_long():
    rows = measured(law=sent([0] * 9), code=sent([1]))
    assert value(rows, "load", 0) == value(rows, "load", 1) == value(rows, "load_max") == 0.5
    assert value(rows, "mutual_information") == pytest.approx(math.log(2))


def test_soft_routes_load_by_their_gates():
    rows = measured(law=soft([[[0.7, 0.1, 0.1, 0.1], [0.3, 0.4, 0.2, 0.1]]]))
    assert [value(rows, "load", e, "law") for e in range(4)] == pytest.approx(
        [0.5, 0.25, 0.15, 0.1]
    )
    assert [value(rows, "likeliest", e, "law") for e in range(4)] == [0.5, 0.5, 0, 0]
    assert [value(rows, "above", e, "law") for e in range(4)] == [0.5, 0, 0, 0]
    assert value(rows, "used") == 0.25
    assert value(rows, "experts", domain="law") == 4 and value(rows, "several", domain="law") == 1


def test_two_experts_have_no_utilisation():
    rows = measured(homes=(None,) * 2, law=soft([[[0.9, 0.1]]]))
    assert not [row for row in rows if row["metric"] in ("used", "above")]


def test_entropies():
    even, sure = [0.25] * 4, [1 - 3e-9, 1e-9, 1e-9, 1e-9]
    rows = measured(law=soft([[even, sure]]))
    assert value(rows, "entropy", domain="law") == pytest.approx(math.log(4) / 2, abs=1e-6)
    load = [0.625, 0.125, 0.125, 0.125]
    wanted = float(scipy_stats.entropy(load))
    assert value(rows, "load_entropy", domain="law") == pytest.approx(wanted, abs=1e-6)
    assert entropy(np.array([0.0, 1.0])) == 0


def test_dropped_choices_serve_nobody():
    logits = torch.tensor([[[2.0, 0], [2, 0], [2, 0], [0, 2]]])
    routing = limit(top_k(logits, 1, False), 1.0)  # two of the three tokens for expert 0 fit
    rows = measured(homes=(None,) * 2, law=routing)
    assert value(rows, "dropped") == value(rows, "none") == 0.25
    assert value(rows, "experts") == 0.75
    assert value(rows, "load", 0) == value(rows, "likeliest", 0) == pytest.approx(2 / 3)


def test_an_expert_is_dead_below_a_hundredth_of_an_even_load():
    rows = measured(law=soft([[[0.5, 0.4955, 0.0026, 0.0019]]]))  # even would be 0.25
    assert value(rows, "dead") == 0.25


def test_experts_that_choose_take_some_tokens_twice_and_others_never():
    kept = torch.tensor([[[1, 1], [1, 0], [0, 1], [0, 0]]], dtype=torch.bool)
    logits = torch.zeros(1, 4, 2)
    rows = measured(homes=(None,) * 2, law=Routing(logits, 0.5 * kept, everyone(logits), kept))
    assert value(rows, "load", 0) == 0.5
    assert value(rows, "none") == 0.25 and value(rows, "several") == 0.25
    assert value(rows, "experts") == 1 and value(rows, "dropped") == 0


def test_what_is_not_counted_leaves_no_trace():
    whole, part = sent([0, 1, 2, 3]), torch.tensor([[True, True, False, False]])
    own, alone = count(whole, part), count(sent([0, 1]), part[:, :2])
    for found, wanted in zip(own, alone, strict=True):
        assert np.array_equal(found, wanted)
    both = own.plus(count(whole, ~part)).plus(None)
    for found, wanted in zip(both, count(whole, EVERY), strict=True):
        assert np.array_equal(found, wanted)


def test_a_domain_in_which_no_gate_opens_has_no_load():
    closed = torch.zeros(1, 3, 4)
    nobody = Routing(closed, closed, everyone(closed), torch.zeros(1, 3, 4, dtype=torch.bool))
    rows = measured(law=nobody, code=sent([0, 1]), web=sent([2, 2]))
    assert not [row for row in rows if (row["domain"], row["metric"]) == ("law", "load")]
    assert value(rows, "none", domain="law") == 1
    assert value(rows, "mutual_information") == pytest.approx(math.log(2))
    assert not [row for row in measured(law=nobody) if row["metric"] == "mutual_information"]


@pytest.mark.parametrize("domains", [2, 3, 5])
def test_mutual_information_is_the_log_of_domains_with_experts_of_their_own(domains):
    names = [f"d{i}" for i in range(domains)]
    rows = measured(
        (None,) * domains, **{n: sent([i] * 6, of=domains) for i, n in enumerate(names)}
    )
    for metric in ("mutual_information", "mutual_information_likeliest"):
        assert value(rows, metric) == pytest.approx(math.log(domains))
    alike = measured((None,) * domains, **{n: sent([0, 1], of=domains) for n in names})
    assert value(alike, "mutual_information") == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_mutual_information_against_sklearn_and_scipy(seed):
    rng = np.random.default_rng(seed)
    tokens, experts = 400, 6
    labels = [rng.choice(experts, tokens, p=rng.dirichlet(np.ones(experts))) for _ in range(4)]
    rows = measured(
        (None,) * experts,
        **{f"d{i}": sent(own.tolist(), of=experts) for i, own in enumerate(labels)},
    )
    owners = np.repeat(np.arange(4), tokens)
    wanted = mutual_info_score(owners, np.concatenate(labels))
    assert value(rows, "mutual_information") == pytest.approx(wanted)
    shares = rng.dirichlet(np.ones(experts), size=3)
    pairs = [scipy_stats.entropy(own, shares.mean(0)) for own in shares]
    assert mutual_information(shares) == pytest.approx(np.mean(pairs))


def test_the_likeliest_expert_tells_the_domain_although_gates_are_nearly_even():
    rows = measured((None,) * 2, law=soft([[[0.51, 0.49]] * 3]), code=soft([[[0.49, 0.51]] * 3]))
    assert value(rows, "mutual_information_likeliest") == pytest.approx(math.log(2))
    assert value(rows, "mutual_information") < 1e-3


def test_own_domain():
    homes = homes_of(["seed_model", "code", "law", "math.1of2", "math.2of2"], "general")
    assert homes == ["general", "code", "law", "math", "math"]
    rows = measured(homes, math=sent([3, 4, 4, 0], of=5), law=sent([1, 2], of=5))
    assert value(rows, "own_domain", domain="math") == 0.75
    assert value(rows, "own_domain_even", domain="math") == 0.4
    assert value(rows, "own_domain", domain="law") == 0.5
    assert value(rows, "own_domain") == 0.625
    assert not [r for r in measured(web=sent([0, 1])) if r["metric"] == "own_domain"]


def test_experts_of_one_model_or_of_all_have_no_home():
    assert homes_of(["seed_model"] * 3, "general") == [None] * 3
    assert homes_of(["blend[1/2]", "blend[2/2]"], "general") == [None] * 2
    assert homes_of(["code[1/2]", "code[2/2]", "law[1/2]"], "general") == ["code", "code", "law"]
    assert homes_of(["seed_model", "scratch"], "general") == ["general", None]


def test_layers_are_averaged_but_not_experts():
    rows = [
        *rows_of(Place(0, "ffn"), {"law": count(sent([0, 0, 1, 1]), EVERY)}, (None,) * 4),
        *rows_of(Place(1, "ffn"), {"law": count(sent([0, 1, 2, 3]), EVERY)}, (None,) * 4),
        *rows_of(Place(1, "attention"), {"law": count(sent([0] * 4), EVERY)}, (None,) * 4),
    ]
    means = over_layers(rows)
    assert value(means, "dead", layer=ALL) == 0.25
    assert value(means, "dead", layer=ALL, router="attention") == 0.75
    assert all(row["expert"] == ALL and row["n"] == 4 for row in means)


@pytest.mark.parametrize(
    ("method", "decisions", "wanted"),
    [
        ("btx-top-1", 25, list(range(25))),
        ("lory-own_mean", 3, [0] * 10 + [1] * 10 + [2] * 5),
        ("lory-bos", 4, [1] * 10 + [2] * 10 + [3] * 5),
        ("lory-prefix-bos", 1, [0] * 25),
        ("smear", 1, [0] * 25),
    ],
)
def test_each_token_follows_its_decision(method, decisions, wanted):
    assert SEGMENT == 10
    routing = dict(routings_of(model_of(METHODS[method])(text(2, 25))))[Place(0, "ffn")]
    assert routing.logits.shape[1] == decisions
    assert decision_of(METHODS[method], 25, decisions).tolist() == wanted
    scored = torch.zeros(2, 25, dtype=torch.bool)
    scored[0, :11] = True
    counted = decisions_that_count(METHODS[method], routing, scored)
    assert counted[0].nonzero()[:, 0].tolist() == sorted({*wanted[:11]})
    assert not counted[1].any()


@pytest.mark.parametrize("method", [name for name in METHODS if not has_bos(METHODS[name])])
def test_loads_are_those_that_training_logs(method):
    """But under `bos`, whose log counts a first decision that is for no token."""
    output = model_of(METHODS[method])(text())
    facts = routing_facts(output)
    rows = []
    for place, routing in routings_of(output):
        every = torch.ones(routing.logits.shape[:2], dtype=torch.bool)
        rows += rows_of(place, {"law": count(routing, every)}, (None,) * routing.logits.shape[2])
    means = over_layers(rows)
    for kind in {place.router for place, _ in routings_of(output)}:
        for ours, theirs in (
            ("load_max", "load_max"),
            ("load_min", "load_min"),
            ("entropy", "entropy"),
            ("used", "used"),
        ):
            found = value(means, ours, layer=ALL, router=kind)
            assert found == pytest.approx(float(facts[f"{theirs}_{kind}"]), rel=1e-4, abs=1e-6)


def two_rules(router, logits, owners, num_experts=2):
    """Return the training rows of a model of one routed layer whose logits are set by hand."""
    model = model_of(btx(router), num_layers=1)
    routed = LayerRouting(None, top_k(logits, 1, False))
    output = Output(torch.zeros(*logits.shape[:2], 16), (routed,))
    scored = torch.ones(logits.shape[:2], dtype=torch.bool)
    return list(training_rows(model, output, scored, owners))


def test_rules_agree_where_experts_choose_what_tokens_would():
    logits = torch.tensor([[[5.0, 0, 0, 0], [0, 5, 0, 0], [0, 0, 5, 0], [0, 0, 0, 5]]] * 2)
    rows = two_rules(expert_choice(1.0, 1), logits, ["law", "code"])
    assert value(rows, "agreement", layer=0) == 1
    assert value(rows, "training_none", layer=0) == value(rows, "training_several", layer=0) == 0


def test_rules_part_where_all_tokens_want_one_expert():
    """Eight tokens want expert 0, law's more than code's: the expert takes two, both of law."""
    want = torch.tensor([[9.0, 8.0, 7.0, 6.0], [5.0, 4.0, 3.0, 2.0]])
    logits = torch.zeros(2, 4, 4)
    logits[..., 0] = want
    rows = two_rules(expert_choice(1.0, 1), logits, ["law", "code"])
    # Evaluation sends every token to expert 0, training two of law; the others take code's last.
    trained = serving(choose(logits, expert_choice(1.0, 1)))
    assert trained[..., 0].sum(1).tolist() == [2, 0]
    law = trained[0].sum() + 2  # pairs of either: training's, and evaluation's that it lacks
    assert value(rows, "agreement", domain="law", layer=0) == pytest.approx(2 / float(law))
    assert value(rows, "agreement", domain="code", layer=0) == 0
    nobody = (trained.sum(-1) == 0).float().mean(1).tolist()
    found = [value(rows, "training_none", domain=d, layer=0) for d in ("law", "code")]
    assert found == pytest.approx(nobody)
    assert value(rows, "training_several", layer=0) > 0


def test_a_capacity_limit_drops_in_training_alone():
    logits = torch.zeros(1, 8, 4)
    logits[..., 0] = 5.0
    rows = two_rules(ROUTERS["top-1"].model_copy(update={"capacity_factor": 1.0}), logits, ["law"])
    assert value(rows, "training_dropped", layer=0) == value(rows, "training_none", layer=0) == 0.75
    assert value(rows, "agreement", layer=0) == 0.25


def test_which_rules_differ():
    assert [name for name in FFN_ROUTERS if not differs(FFN_ROUTERS[name])] == [
        "top-2-bias",
        "hash-random",
        "hash-balanced",
        "hash-clustered",
        "hash-dispersed",
        "relu",
    ]
    assert not any(map(differs, ROUTERS.values()))


def test_token_examples_by_hand():
    tokens = torch.tensor([[5, 5, 5, 6, 6, 6, 7, 7]])
    routing = sent([0, 0, 1, 1, 1, 1, 0, 1], of=2)
    sums = no_tokens(10, 2)
    scored = torch.ones(1, 8, dtype=torch.bool)
    scored[0, 7] = False
    add_tokens(sums, METHODS["btx-top-1"], routing, tokens, scored)
    assert sums.seen.tolist() == [0, 0, 0, 0, 0, 3, 3, 1, 0, 0]
    rows = examples({PLACE: sums}, least=3)
    found = [(row["expert"], row["token"], row["share"], row["n"]) for row in rows]
    assert found == [(0, 5, pytest.approx(2 / 3), 3), (1, 6, 1.0, 3)]
    assert [row["token"] for row in examples({PLACE: sums}, most=1, least=1)] == [7, 6]


def test_a_tokens_expert_is_its_segments():
    method = METHODS["lory-own_mean"]
    sums = no_tokens(3, 2)
    tokens = torch.tensor([[1] * 10 + [2] * 5])
    every = torch.ones_like(tokens, dtype=torch.bool)
    add_tokens(sums, method, soft([[[0.9, 0.1], [0.2, 0.8]]]), tokens, every)
    assert sums.weight[1:].flatten().tolist() == pytest.approx([9, 1, 1, 4])


END = 0
DOMAINS = {"law": 1, "code": 0}
"""Domain -> remainder by 2 of all its tokens."""


@pytest.fixture
def tokens_dir(tmp_path):
    """Write encoded text: law is of odd tokens, code of even ones."""
    rng = np.random.default_rng(0)
    for domain, odd in DOMAINS.items():
        lengths, pieces, index, at = (30, 100, 70, 45), [], [], 0
        for length in lengths:
            pieces.append(np.append(2 * rng.integers(1, 30, length) + odd, END))
            index.append((at, length, 2 * length, 0))
            at += length + 1
        np.save(tmp_path / f"{domain}.test.npy", np.concatenate(pieces).astype("<u2"))
        np.save(tmp_path / f"{domain}.test.documents.npy", np.array(index, dtype=DOCUMENT))
    manifest = {
        "digest": "",
        "vocab_size": 61,
        "end_of_text": END,
        "sources": ["books"],
        "tokens": {},
    }
    write_json(tmp_path / "tokens.json", manifest)
    return tmp_path


def on_text(model, tokens_dir, homes=(None,) * 4, seq_len=60, precision="float32"):
    return measure(
        model.eval(), tokens_dir, list(DOMAINS), "test", seq_len, 1000, precision, homes, 8
    )


def test_a_hash_of_odd_and_even_tells_the_domain(tokens_dir):
    """End-of-text is even and opens documents of law too: of 245 tokens there 4 are not odd."""
    model = model_of(METHODS["btx-hash-random"])
    for layer in model.layers:
        layer.ffn.hash.copy_(torch.arange(61) % 2)
    found = on_text(model, tokens_dir, ("code", "law", "web", "web"))
    rows = found.rows
    assert value(rows, "load", 1, "law", 0) == pytest.approx(241 / 245)
    assert value(rows, "load", 0, "code", 1) == 1
    assert value(rows, "own_domain", domain="law", layer=0) == pytest.approx(241 / 245)
    assert value(rows, "dead", layer=ALL) == 0.5
    p = np.array([[241 / 245, 4 / 245], [0, 1]])
    wanted = np.mean([scipy_stats.entropy(own, p.mean(0)) for own in p])
    assert value(rows, "mutual_information", layer=ALL) == pytest.approx(wanted)
    assert {row["n"] for row in rows if row["domain"] == "law"} == {245}
    assert {row["token"] % 2 for row in found.tokens if row["expert"] == 1} == {1}
    assert all(row["share"] == 1 for row in found.tokens)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_measured_the_same_way(tokens_dir, method):
    found = on_text(model_of(METHODS[method]), tokens_dir)
    columns = {"kind", "layer", "router", "expert", "domain", "metric", "value", "n"}
    assert found.rows and all(set(row) == columns for row in found.rows)
    assert all(math.isfinite(row["value"]) and row["n"] > 0 for row in found.rows)
    keys = [tuple(v for k, v in row.items() if k not in ("value", "n")) for row in found.rows]
    assert len(set(keys)) == len(keys)
    loads = {}
    for row in found.rows:
        if row["metric"] == "load":
            place = row["layer"], row["router"], row["domain"]
            loads[place] = loads.get(place, 0) + row["value"]
    assert loads and all(total == pytest.approx(1) for total in loads.values())
    routers = {"ffn", "attention"} if method.startswith("bam") else {"ffn"}
    assert {row["router"] for row in found.rows} == routers
    counted = {row["n"] for row in found.rows if row["domain"] == "law" and in_evaluation(row)}
    segments = isinstance(METHODS[method], LoryMethod | SegmentMoEMethod | SMEARMethod)
    assert (counted == {245}) is not segments  # tokens whose next one is scored


def in_evaluation(row):
    return row["metric"] != "agreement" and not row["metric"].startswith("training_")


def test_rows_of_the_training_rule_are_there_where_it_differs(tokens_dir):
    for name, there in (("btx-expert-choice", True), ("btx-top-2", False), ("btx-sample", True)):
        rows = on_text(model_of(METHODS[name]), tokens_dir).rows
        assert any(row["metric"] == "agreement" for row in rows) is there
        if there:
            assert 0 < value(rows, "agreement", layer=ALL) < 1


def test_a_dense_model_has_no_rows(tokens_dir):
    assert on_text(model_of(DENSE), tokens_dir) == ([], [])


def test_windows_and_precision_move_little(tokens_dir):
    model = model_of(METHODS["bam-shared-soft"])
    exact, reduced = (
        on_text(model, tokens_dir, precision=p).rows for p in ("float32", "bf16-mixed")
    )
    for one, other in zip(exact, reduced, strict=True):
        assert other["value"] == pytest.approx(one["value"], abs=0.05)
    assert exact != reduced
