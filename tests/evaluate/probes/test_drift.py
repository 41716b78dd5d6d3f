"""Drift of expert weights: against the inputs of the routers, segment by segment."""

import pytest
import torch

from bam_lab.errors import SpecError
from bam_lab.evaluate.probes.drift import drift_rows, no_drift
from bam_lab.evaluate.probes.rows import COLUMNS
from bam_lab.evaluate.probes.texts import switched
from bam_lab.model.router import select
from tests.evaluate.probes.probe_text import only, random_text
from tests.evaluate.probes.test_completion import SEGMENTED, SYSTEMS, system
from tests.model.cases import METHODS, SEGMENT

TEXT = [random_text("law", length=56), random_text("code", rows=3, length=56, seed=1)]
PROMPT = 2 * SEGMENT
ROUTED = [name for name in SYSTEMS if name not in ("dense", "ensemble") and "prefix" not in name]
CAUSAL_SEGMENTS = [name for name in SEGMENTED if "prefix" not in name]


def rows_of(model, text=TEXT, prompt_len=PROMPT, bin_len=SEGMENT, **settings):
    return drift_rows(model, text, prompt_len, bin_len, **({"precision": "float32"} | settings))


@torch.no_grad()
def inputs_of(model, tokens):
    """Return what each layer's FFN read, without the place of a token before the sequence."""
    seen, hooks = [], []
    for layer in model.layers:
        hook = layer.ffn.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[1]))
        hooks.append(hook)
    model(tokens)
    for hook in hooks:
        hook.remove()
    return [own[:, -tokens.shape[1] :] for own in seen]


def weights_by_hand(ffn, mean):
    """Return the shares that a mean decides on."""
    logits = (ffn.router @ mean)[None, None]
    if not hasattr(ffn, "router_spec"):
        return logits[0, 0].softmax(-1)
    chosen = select(logits, ffn.router_spec).gates[0, 0] > 0
    return chosen / chosen.sum()


@torch.no_grad()
@pytest.mark.parametrize("name", CAUSAL_SEGMENTS)
def test_segments_by_hand(name):
    model = system(name)
    rows = rows_of(model)
    for own in TEXT:
        every = inputs_of(model, torch.from_numpy(own.tokens[:, :-1]))
        for layer, seen in enumerate(every):
            ffn = model.layers[layer].ffn
            for start in range(0, 35, SEGMENT):
                moved = []
                for row in seen:
                    before = weights_by_hand(ffn, row[:PROMPT].mean(0))
                    end = PROMPT + start
                    after = weights_by_hand(ffn, row[end - SEGMENT : end].mean(0))
                    moved.append(float((before - after).abs().sum() / 2))
                found = only(rows, domain=own.domain, layer=layer, distance=start)
                assert found["value"] == pytest.approx(sum(moved) / len(moved), abs=1e-5)


def test_tokens_by_hand():
    """A token that goes to one expert has all of its share there."""
    model = system("btx-top-1")
    rows = rows_of(model, bin_len=12)
    output = model(torch.from_numpy(TEXT[0].tokens[:, :-1]))
    for layer, routing in enumerate(output.routings):
        shares = torch.nn.functional.one_hot(routing.ffn.chosen[..., 0], 4).float()
        before = shares[:, :PROMPT].mean(1)
        for start, stop in ((0, 12), (12, 24), (24, 35)):
            after = shares[:, PROMPT + start : PROMPT + stop].mean(1)
            wanted = (before - after).abs().sum(-1).mean() / 2
            found = only(rows, domain="law", layer=layer, distance=start)
            assert found["value"] == pytest.approx(float(wanted), abs=1e-6)
            assert (found["bin_len"], found["router"]) == (stop - start, "ffn")


@pytest.mark.parametrize("name", [*ROUTED, "ensemble"])
def test_every_router_has_its_rows(name):
    model = system(name)
    rows = rows_of(model)
    assert all(tuple(row) == COLUMNS for row in rows)
    own = [row for row in rows if row["domain"] == "law"]
    routers = {(row["layer"], row["router"]) for row in own}
    if name != "ensemble":
        output = model(torch.from_numpy(TEXT[0].tokens))
        wanted = {
            (layer, kind)
            for layer, found in enumerate(output.routings)
            for kind in ("ffn", "attention")
            if getattr(found, kind) is not None
        }
        assert routers == wanted | {("*", "*")} and wanted
    assert len(own) == 4 * len(routers)
    assert all(0 <= row["value"] <= 1 + 1e-9 for row in rows)
    for start in (0, 30):
        each = [r["value"] for r in own if r["distance"] == start and r["router"] != "*"]
        mean = only(own, distance=start, router="*")["value"]
        assert mean == pytest.approx(sum(each) / len(each))


@pytest.mark.parametrize("name", ["lory-uniform", "btx-soft", "ensemble"])
def test_alone_as_in_a_batch(name):
    model = system(name)
    many, alone = rows_of(model), rows_of(model, batch_tokens=1)
    assert [row["value"] for row in many] == pytest.approx([r["value"] for r in alone], abs=1e-5)


def test_nothing_moves_where_routers_see_nothing():
    model = system("lory-uniform")
    for layer in model.layers:
        layer.ffn.router.data.zero_()
    assert max(row["value"] for row in rows_of(model)) < 1e-7


def test_what_is_read_moves_the_weights():
    """The first segment behind the prompt is still decided by the prompt's last one."""
    model, turned = system("lory-uniform"), switched(TEXT, PROMPT)
    straight, other = rows_of(model), rows_of(model, turned)
    for domain, prompt_domain in (("law", "code"), ("code", "law")):
        first = only(other, domain=domain, distance=0, layer=0)
        assert first["prompt_domain"] == prompt_domain
        later = only(other, domain=domain, distance=20, layer=0)["value"]
        assert later != pytest.approx(only(straight, domain=domain, distance=20, layer=0)["value"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dense", "method must route to measure the drift of expert weights, got dense"),
        ("lory-prefix-bos", "routing must be causal to measure the drift .* got prefix"),
        ("smear", "causal inference rule .* got smear"),
    ],
)
def test_what_has_no_drift(name, message):
    with pytest.raises(SpecError, match=message):
        rows_of(system(name))


def test_lengths_that_do_not_fit():
    with pytest.raises(
        SpecError, match=r"prompt_len must be whole segments of 10 tokens .* got 23"
    ):
        rows_of(system("lory-uniform"), prompt_len=23)
    with pytest.raises(SpecError, match=r"completion_len must be at least 2 .* got 1"):
        rows_of(system("btx-top-1"), prompt_len=55)
    with pytest.raises(SpecError, match="bin_len must be at least 1, got 0"):
        rows_of(system("btx-top-1"), bin_len=0)


def test_who_drifts_is_known_without_text():
    assert no_drift(system("dense")) and no_drift(system("lory-prefix-own_mean"))
    assert all(no_drift(system(name)) is None for name in ("ensemble", "lory-bos", "btx-top-1"))
    assert "lory-prefix-own_mean" in METHODS
