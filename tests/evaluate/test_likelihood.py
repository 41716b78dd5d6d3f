"""Likelihoods of continuations: by hand, as generation goes, whatever shares a batch."""

import math

import pytest
import torch
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from bam_lab.errors import InputError, SpecError
from bam_lab.evaluate.likelihood import (
    NotFinite,
    bits_per_byte,
    continuation_nats,
    rolling_nats,
    rolling_windows,
    routes_segments,
)
from bam_lab.hf.causal import HFCausal
from bam_lab.hf.names import LLAMA, to_hf
from bam_lab.hf.reference import llama
from bam_lab.model.generate import Decoder
from bam_lab.spec.laws import no_generation
from bam_lab.spec.model import END_OF_TEXT_ID
from tests.model.cases import DENSE, METHODS, SEGMENT, model_of
from tests.model.test_ensemble import btm, ensemble_of

CAUSAL = [name for name, method in METHODS.items() if no_generation(method) is None]
SYSTEMS = [*CAUSAL, "dense", "ensemble"]
LIMIT = 150  # max_seq_len of the tests' shape
# Contexts shorter than a segment, across segments, and cut; continuations of one token and many.
LENGTHS = [(1, 1), (5, 3), (SEGMENT, 1), (30, 20), (25, SEGMENT + 3), (200, 3), (1, LIMIT), (3, 9)]


def system(name):
    if name == "ensemble":
        return ensemble_of(btm(2))
    return model_of(DENSE if name == "dense" else METHODS[name])


def tokens(n, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1, 61, (n,), generator=generator).tolist()


def pairs_of(lengths):
    return [(tokens(n, i), tokens(m, 100 + i)) for i, (n, m) in enumerate(lengths)]


def nats(model, pairs, **settings):
    return continuation_nats(model, pairs, **({"precision": "float32"} | settings))


def close(found, wanted):
    torch.testing.assert_close(
        torch.tensor([one.nats for one in found]), torch.tensor([one.nats for one in wanted])
    )
    assert [one[1:] for one in found] == [one[1:] for one in wanted]


def test_by_hand():
    model = model_of(DENSE)
    context, continuation = tokens(7, 0), tokens(4, 1)
    row = torch.tensor([context + continuation])
    log_probs = model.logits(model(row).hidden)[0].log_softmax(-1)
    wanted = -sum(log_probs[6 + i, token].item() for i, token in enumerate(continuation))
    (found,) = nats(model, [(context, continuation)])
    assert found.nats == pytest.approx(wanted, rel=1e-5)
    assert found[1:] == (False, 4, 0)


def test_greedy_is_what_greedy_decoding_gives():
    model = model_of(DENSE)
    context, likeliest = tokens(7, 0), []
    for _ in range(5):
        logits = model.logits(model(torch.tensor([context + likeliest])).hidden)[0, -1]
        likeliest.append(int(logits.argmax()))
    other = [*likeliest[:4], (likeliest[4] + 1) % 61]
    found = nats(model, [(context, likeliest), (context, other), (context, likeliest[:2])])
    assert [one.greedy for one in found] == [True, False, True]


@pytest.mark.parametrize(
    ("name", "rule"),
    [(name, "prompt") for name in SYSTEMS]
    + [(name, "segment") for name in SYSTEMS if name.startswith(("lory", "segment_moe"))],
)
def test_as_generation_goes(name, rule):
    """Each token has the likelihood that decoding gives it, under the same rule of routing."""
    model = system(name)
    context, continuation = tokens(SEGMENT + 4, 2), tokens(SEGMENT + 5, 3)
    decoder = Decoder(model, torch.tensor([context]), None, len(continuation) + 1, rule)
    wanted = 0.0
    with torch.no_grad():
        logits = decoder.start()
        for token in continuation:
            wanted -= logits[0].log_softmax(-1)[token].item()
            logits = decoder.step(torch.tensor([token]))
    (found,) = nats(model, [(context, continuation)], rule=rule)
    assert found.nats == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("name", SYSTEMS)
def test_what_shares_a_batch_changes_nothing(name):
    model, pairs = system(name), pairs_of(LENGTHS)
    alone = [nats(model, [pair])[0] for pair in pairs]
    close(nats(model, pairs, batch_tokens=64), alone)
    close(nats(model, pairs[::-1], batch_tokens=100_000), alone[::-1])


@pytest.mark.parametrize("name", ["dense", "lory-own_mean", "segment_moe-bos-top-2-renormalized"])
def test_a_long_context_is_cut_on_the_left(name):
    model = system(name)
    context, continuation = tokens(200, 4), tokens(9, 5)
    kept = LIMIT + 1 - len(continuation)
    (found,) = nats(model, [(context, continuation)])
    (cut,) = nats(model, [(context[-kept:], continuation)])
    assert found.truncated == 200 - kept and cut.truncated == 0
    close([found._replace(truncated=0)], [cut])
    (shorter,) = nats(model, [(context, continuation)], max_len=20)
    (own,) = nats(model, [(context[-12:], continuation)])
    assert shorter.truncated == 200 - 12
    close([shorter._replace(truncated=0)], [own])


def test_a_continuation_as_long_as_the_model_keeps_one_token_of_context():
    model = model_of(DENSE)
    context, continuation = tokens(50, 6), tokens(LIMIT, 7)
    long, short = nats(model, [(context, continuation), (context[-1:], continuation)])
    assert (long.truncated, short.truncated, long.tokens) == (49, 0, LIMIT)
    close([long._replace(truncated=0)], [short])


def test_equal_rows_are_read_once():
    """Four answers of one token cost one row, and two of three tokens two."""
    model, read = model_of(DENSE), []
    model.register_forward_pre_hook(lambda module, inputs: read.append(tuple(inputs[0].shape)))
    context = tokens(10, 8)
    answers = nats(model, [(context, [answer]) for answer in (3, 4, 5, 6)])
    assert read == [(1, 10)]
    log_probs = model.logits(model(torch.tensor([context])).hidden)[0, -1].log_softmax(-1)
    wanted = [-log_probs[answer].item() for answer in (3, 4, 5, 6)]
    assert [one.nats for one in answers] == pytest.approx(wanted, rel=1e-5)
    read.clear()
    nats(model, [(context, [3, 4, 5]), (context, [3, 4, 6]), (context, [4, 4, 5])])
    assert read == [(2, 12)]


def test_bf16_is_near():
    model, pairs = model_of(DENSE), pairs_of(LENGTHS)
    exact, reduced = (nats(model, pairs, precision=p) for p in ("float32", "bf16-mixed"))
    for one, other in zip(exact, reduced, strict=True):
        assert other.nats == pytest.approx(one.nats, rel=0.03)  # worst measured 0.009
    assert exact != reduced


def test_a_model_of_transformers_gives_the_same():
    model, pairs = model_of(DENSE, "serial"), pairs_of(LENGTHS)
    other = llama(model.spec)
    other.load_state_dict(to_hf(model.state_dict(), LLAMA, model.spec))
    close(nats(HFCausal(other.eval()), pairs), nats(model, pairs))


@pytest.mark.parametrize("name", [n for n in METHODS if n not in CAUSAL])
def test_what_sees_the_answer_is_refused(name):
    with pytest.raises(SpecError, match="causal inference rule to score continuations, got s"):
        nats(model_of(METHODS[name]), [([1], [2])])


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([([1], [2]), ([], [2])], r"pairs\[1\].context must hold a token.*end-of-text"),
        ([([1], [])], r"pairs\[0\].continuation must hold a token, got none"),
        ([([1], [2] * 151)], r"continuation must be at most max_len 150 tokens, got 151"),
        ([([1], [61])], r"pairs\[0\] must hold tokens below vocab_size 61, got 61"),
        ([([-1], [2])], r"below vocab_size 61, got -1"),
    ],
)
def test_pairs_that_cannot_be_scored(pairs, message):
    with pytest.raises(InputError, match=message):
        nats(model_of(DENSE), pairs)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_len": 151}, "max_len must be from 1 to the model's max_seq_len 150, got 151"),
        ({"max_len": 0}, "max_len must be from 1"),
        ({"batch_tokens": 0}, "batch_tokens must be at least 1, got 0"),
        ({"rule": "segment"}, "rule must be prompt with a method that routes no segments"),
    ],
)
def test_settings_that_are_impossible(settings, message):
    with pytest.raises(SpecError, match=message):
        nats(model_of(DENSE), [([1], [2])], **settings)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nan_and_infinity_are_errors(value):
    model = model_of(DENSE)
    model.embedding.data[7] = value
    assert nats(model, [([1, 2], [7])])[0].nats > 0  # predicted, never read
    with pytest.raises(NotFinite, match=r"pairs\[1\] must have a finite likelihood, got nan"):
        nats(model, [([1, 2], [3]), ([1, 7], [3])])


def test_no_pairs():
    assert nats(model_of(DENSE), []) == []


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 31, 32, 33, 50])
def test_windows_are_lm_evals(length):
    text = list(range(1, length + 1))
    theirs = map(make_disjoint_window, get_rolling_token_windows(text, END_OF_TEXT_ID, 16, 1))
    # Theirs are inputs and targets, which share all but a token at either end.
    wanted = [(context, target) for context, target in theirs]
    ours = rolling_windows(text, 16, END_OF_TEXT_ID)
    assert ours == wanted
    assert [token for _, target in ours for token in target] == text


@pytest.mark.parametrize("name", ["dense", "ensemble", "btx-top-2", "lory-own_mean", "lory-bos"])
def test_rolling(name):
    """What fits one window is one forward pass; longer text is the sum of its windows."""
    model = system(name)
    texts = [tokens(n, n) for n in (1, 40, LIMIT, 2 * LIMIT + 7)]
    found = rolling_nats(model, texts, precision="float32")
    assert [(one.tokens, one.windows) for one in found] == [(1, 1), (40, 1), (150, 1), (307, 3)]
    rule = "segment" if routes_segments(model) else "prompt"
    for text, one in zip(texts, found, strict=True):
        windows = rolling_windows(text, LIMIT, END_OF_TEXT_ID)
        own = nats(model, windows, rule=rule)
        assert one.nats == pytest.approx(sum(window.nats for window in own), rel=1e-6)
    if name == "dense":
        stream = torch.tensor([[END_OF_TEXT_ID, *texts[1]]])
        log_probs = model.logits(model(stream[:, :-1]).hidden).log_softmax(-1)
        by_hand = -log_probs.gather(-1, stream[:, 1:, None]).sum().item()
        assert found[1].nats == pytest.approx(by_hand, rel=1e-5)


def test_the_length_of_windows_is_part_of_the_value():
    model, text = model_of(DENSE), tokens(60, 9)
    long, short = (rolling_nats(model, [text], precision="float32", max_len=n)[0] for n in (150, 8))
    assert (long.windows, short.windows) == (1, 8)
    assert long.nats != pytest.approx(short.nats, rel=1e-3)


def test_a_text_without_tokens():
    with pytest.raises(InputError, match=r"documents\[1\] must hold a token, got none"):
        rolling_nats(model_of(DENSE), [[1], []], precision="float32")


def test_bits_per_byte():
    assert bits_per_byte(8 * math.log(2), 4) == pytest.approx(2)
