"""Completions: as `generate` goes, up to stop strings, the same in every batch."""

import math
from collections import Counter
from dataclasses import replace

import pytest
import torch

from bam_lab.errors import InputError, SpecError
from bam_lab.evaluate.answering import Settings, completions, continuations, rolled
from bam_lab.evaluate.likelihood import NotFinite, continuation_nats, rolling_nats
from bam_lab.hf.causal import HFCausal
from bam_lab.hf.names import LLAMA, to_hf
from bam_lab.hf.reference import llama
from bam_lab.model.ensemble import assemble
from bam_lab.model.generate import generate
from bam_lab.spec.model import END_OF_TEXT_ID
from tests.evaluate.harness_cases import VOCAB, model, sentence, words
from tests.model.cases import METHODS
from tests.model.test_ensemble import btm

EXACT = Settings("float32")
PROMPTS = [sentence(i, 1 + 5 * i) for i in range(5)]
NEW = 12


def texts(own, prompts=PROMPTS, settings=EXACT, **wanted):
    requests = [(prompt, {"max_gen_toks": NEW} | wanted) for prompt in prompts]
    return [one.text for one in completions(own, words(), settings, requests)]


def system(name):
    if name == "ensemble":
        noise = torch.Generator().manual_seed(0)
        states = [model(seed=i).state_dict() for i in range(3)]
        idf = 1 + torch.rand(VOCAB, generator=noise)
        centroids = torch.rand(3, VOCAB, generator=noise) ** 4
        return assemble(model().spec, btm(2), states, idf, centroids)
    return model(METHODS[name])


def by_generate(own, prompt, **settings):
    ids = torch.tensor([words().encode(prompt)])
    done = generate(own, ids, None, NEW, **settings)
    made = done.tokens[0, : done.lengths[0]].tolist()
    return words().decode([token for token in made if token != END_OF_TEXT_ID])


@pytest.mark.parametrize("name", ["btx-top-2", "lory-own_mean", "lory-bos", "ensemble"])
def test_greedy_is_generate(name):
    own = system(name)
    assert texts(own) == [by_generate(own, prompt) for prompt in PROMPTS]


def test_segments_decide_by_the_rule_that_is_asked():
    own = model(METHODS["lory-own_mean"], init_std=0.4)
    by_rule = [texts(own, settings=Settings("float32", rule=r)) for r in ("prompt", "segment")]
    assert by_rule[1] == [by_generate(own, prompt, rule="segment") for prompt in PROMPTS]
    assert by_rule[0] != by_rule[1]


def test_it_stops_before_the_first_stop_string():
    own = model()
    (whole,) = texts(own, PROMPTS[:1])
    assert len(whole) > 6
    for stop in (whole[3:5], whole[4]):
        at = whole.find(stop)
        assert texts(own, PROMPTS[:1], until=[stop, "never there", ""]) == [whole[:at]]
        assert texts(own, PROMPTS[:1], until=stop) == [whole[:at]]
    first = min(whole.find(whole[5]), whole.find(whole[2]))
    assert texts(own, PROMPTS[:1], until=[whole[5], whole[2]]) == [whole[:first]]


def test_the_first_of_several_stops_within_one_token_counts():
    own = model()
    for prompt, whole in zip(PROMPTS, texts(own), strict=True):
        for token in range(257, VOCAB):
            text = words().decode([token])
            first, second = text[0], text[-1]
            at = whole.find(text)
            if at >= 0 and first not in whole[:at] and second not in whole[: at + 1]:
                assert texts(own, [prompt], until=[second, first]) == [whole[:at]]
                return
    pytest.fail("no completion has such a token")


def test_a_row_that_ended_goes_on_no_more():
    """Rows of one batch end at different steps; here at a token that only some of them make."""
    own = model()
    ids = [torch.tensor([words().encode(prompt)]) for prompt in PROMPTS]
    made = [generate(own, row, None, NEW, end=None).tokens[0].tolist() for row in ids]
    end = next(t for t in made[0][1:-3] if not all(t in row for row in made))
    ending = replace(words(), end=end)
    found = completions(own, ending, EXACT, [(p, {"max_gen_toks": NEW}) for p in PROMPTS])
    cut = [row[: row.index(end)] if end in row else row for row in made]
    assert [one.text for one in found] == [words().decode(row) for row in cut]
    assert {len(row) for row in cut} > {NEW}


def test_a_row_that_stopped_costs_no_step_when_all_have():
    own, steps = model(), []
    advance = own.advance
    own.advance = lambda tokens, cache: steps.append(len(tokens)) or advance(tokens, cache)
    (whole,) = texts(own, PROMPTS[:1])
    assert len(steps) == NEW
    steps.clear()
    texts(own, PROMPTS[:1], until=[whole[0]])
    assert len(steps) == 1


def test_end_of_text_ends_a_completion():
    own = model()
    with torch.no_grad():
        own.lm_head.zero_()  # all tokens are equally likely, and the first is end-of-text
    assert texts(own) == [""] * len(PROMPTS)


@pytest.mark.parametrize("wanted", [{"do_sample": True}, {"temperature": 0.8, "top_p": 0.9}])
def test_batches_change_no_drawn_token(wanted):
    own = model()
    alone = [texts(own, [prompt], **wanted)[0] for prompt in PROMPTS]
    assert texts(own, **wanted) == alone
    assert texts(own, PROMPTS[::-1], **wanted) == alone[::-1]
    assert texts(own, settings=Settings("float32", batch_tokens=1), **wanted) == alone
    assert texts(own, settings=Settings("float32", rng_seed=1), **wanted) != alone
    assert texts(own) != alone


def test_the_same_request_again_draws_anew():
    """Repeats, as for majority votes, are no copies; asked for again they are the same."""
    own = model()
    made = texts(own, PROMPTS[1:2] * 6, do_sample=True)
    assert len(set(made)) > 3
    assert texts(own, PROMPTS[1:2] * 6, do_sample=True) == made


def test_sampling_follows_the_distribution():
    own = model()
    prompt, draws = PROMPTS[1], 600
    requests = [(prompt, {"max_gen_toks": 1, "do_sample": True, "top_k": 2})] * draws
    found = Counter(one.text for one in completions(own, words(), EXACT, requests))
    logits = own.logits(own(torch.tensor([words().encode(prompt)])).hidden)[0, -1]
    top = logits.topk(2)
    share = top.values.softmax(-1)[0].item()
    name = words().decode([int(top.indices[0])])
    assert len(found) == 2
    assert found[name] / draws == pytest.approx(share, abs=4 * math.sqrt(0.25 / draws))


def test_settings_reach_the_draw():
    own = model()
    coldest = texts(own, do_sample=True, temperature=1e-4)
    assert coldest == texts(own)
    with pytest.raises(SpecError, match="top_p must be above 0"):
        texts(own, do_sample=True, top_p=1.5)


def test_a_long_prompt_leaves_room():
    own = model()
    prompt = sentence(3, 120)
    ids = words().encode(prompt)
    (done,) = completions(own, words(), EXACT, [(prompt, {"max_gen_toks": 20})])
    kept = 150 - 20
    assert done.truncated == len(ids) - kept > 0
    cut = generate(own, torch.tensor([ids[-kept:]]), None, 20, end=None).tokens[0].tolist()
    assert done.text == words().decode([t for t in cut if t != END_OF_TEXT_ID])


def test_a_request_without_a_length_gets_half_a_row():
    own = model()
    with torch.no_grad():
        own.lm_head[END_OF_TEXT_ID] = 0
    (done,) = completions(own, words(), EXACT, [(PROMPTS[0], {})])
    ids = torch.tensor([words().encode(PROMPTS[0])])
    made = generate(own, ids, None, 75, end=None).tokens[0].tolist()
    until_end = made[: made.index(END_OF_TEXT_ID)] if END_OF_TEXT_ID in made else made
    assert done.text == words().decode(until_end)


def test_an_empty_prompt_begins_with_end_of_text():
    own = model()
    ids = torch.tensor([[END_OF_TEXT_ID]])
    made = generate(own, ids, None, NEW)
    wanted = words().decode([t for t in made.tokens[0].tolist() if t != END_OF_TEXT_ID])
    assert texts(own, [""]) == [wanted]


def test_a_model_of_transformers_goes_on_the_same_way():
    own = model()
    other = llama(own.spec)
    other.load_state_dict(to_hf(own.state_dict(), LLAMA, own.spec))
    theirs = HFCausal(other.eval())
    for wanted in ({}, {"until": ["a"]}, {"do_sample": True, "top_k": 5}):
        assert texts(theirs, **wanted) == texts(own, **wanted)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"num_beams": 4}, "generation_kwargs must be of .*, got num_beams"),
        ({"max_gen_toks": 150}, "max_gen_toks must be from 1 to 149 .* got 150"),
        ({"max_gen_toks": 0}, "max_gen_toks must be from 1"),
        ({"do_sample": True, "temperature": 0.0}, "temperature must be above 0 with do_sample"),
        ({"do_sample": False, "top_k": 3}, "do_sample must be true with top_k"),
        ({"top_p": 0.5}, "do_sample must be true with top_k or top_p"),
    ],
)
def test_settings_that_are_impossible(wanted, message):
    with pytest.raises(InputError, match=message):
        texts(model(), PROMPTS[:1], **wanted)


def test_what_cannot_generate_is_refused():
    with pytest.raises(SpecError, match="got smear"):
        texts(model(METHODS["smear"]))


def test_nan_is_an_error():
    own = model()
    own.embedding.data[words().encode(PROMPTS[2])[0]] = math.nan
    with pytest.raises(NotFinite, match="logits must be finite"):
        texts(own)


def test_likelihoods_are_of_the_same_settings():
    own = model()
    pairs = [(list(words().encode(p)), [5, 6]) for p in PROMPTS]
    settings = Settings("float32", max_len=12)
    found = continuations(own, settings, pairs)
    assert found == continuation_nats(own, pairs, precision="float32", max_len=12)
    assert found[-1].truncated > 0
    encoded = [words().encode(p) for p in PROMPTS]
    whole = rolling_nats(own, encoded, precision="float32", max_len=12)
    assert rolled(own, words(), settings, PROMPTS) == whole


def test_text_that_spells_end_of_text_stays_text():
    assert END_OF_TEXT_ID not in words().encode("a <|endoftext|> b")
