"""The latency harness on stubs with known delays; completions and halves of real models."""

import threading

import pytest
import torch
from torch import nn

from bam_lab.errors import SpecError
from bam_lab.evaluate.latency import (
    BAM_LOAD,
    Load,
    completion,
    latency_rows,
    measure,
    quartiles,
    random_model,
    timed,
)
from bam_lab.evaluate.rounds import in_rounds, paired
from bam_lab.evaluate.together import part_seconds, together
from bam_lab.model.generate import generate, steps
from bam_lab.spec.laws import no_generation
from tests.model.cases import DENSE, METHODS, model_of, shape, text
from tests.model.test_ensemble import btm, ensemble_of

LOAD = Load(batch=4, prompt=8, new=5)
GENERATES = [name for name in METHODS if not no_generation(METHODS[name])]


class Clock:
    """A clock that stands still until a stub spends time; `pace` is the machine's mood."""

    def __init__(self):
        self.time, self.pace = 0.0, 1.0

    def __call__(self):
        return self.time

    def spend(self, seconds):
        self.time += seconds * self.pace


def stub(clock, prefill, step, new=LOAD.new, first_call=0.0):
    """Return a work of known delays; its first call of all takes longer."""
    calls = []

    def work(first):
        clock.spend(prefill + (0 if calls else first_call))
        calls.append(None)
        first()
        clock.spend(step * (new - 1))

    work.calls = calls
    return work


def value(rows, arm, metric, statistic):
    wanted = (arm, metric, statistic)
    (found,) = [
        row["value"] for row in rows if (row["arm"], row["metric"], row["statistic"]) == wanted
    ]
    return found


def test_one_completion_is_cut_at_its_first_token():
    clock = Clock()
    assert timed(stub(clock, 2.0, 0.5), clock) == (2.0, 2.0)


def test_known_delays_come_out():
    clock = Clock()
    works = {"btx": stub(clock, 0.4, 0.1), "bam": stub(clock, 0.6, 0.15)}
    rows = latency_rows(measure(works, clock, rounds=5), LOAD)
    for arm, prefill, step in (("btx", 0.4, 0.1), ("bam", 0.6, 0.15)):
        for statistic in ("paired", "median", "mean", "low", "high"):
            assert value(rows, arm, "prefill_seconds", statistic) == pytest.approx(prefill)
            assert value(rows, arm, "step_seconds", statistic) == pytest.approx(step)
            assert value(rows, arm, "seconds", statistic) == pytest.approx(prefill + 4 * step)
            rate = value(rows, arm, "prefill_tokens_per_second", statistic)
            assert rate == pytest.approx(4 * 8 / prefill)
            rate = value(rows, arm, "decode_tokens_per_second", statistic)
            assert rate == pytest.approx(4 / step)
        assert value(rows, arm, "seconds", "spread") == pytest.approx(0)
    assert {row["n"] for row in rows} == {5}
    assert {(row["batch"], row["prompt"], row["new"]) for row in rows} == {LOAD}


def test_slow_rounds_meet_all_and_change_no_comparison():
    clock = Clock()
    moods = iter([1.0, 3.0, 1.0, 9.0, 1.0, 2.0, 1.0])

    def tell(done, total):
        if done % 2 == 0:  # a round, or the warm-up, begins
            clock.pace = next(moods, 1.0)

    works = {"btx": stub(clock, 0.4, 0.1), "bam": stub(clock, 0.8, 0.2)}
    found = measure(works, clock, rounds=6, tell=tell)
    rows = latency_rows(found, LOAD)
    ratio = value(rows, "bam", "seconds", "paired") / value(rows, "btx", "seconds", "paired")
    assert ratio == pytest.approx(2)
    assert value(rows, "btx", "seconds", "spread") == pytest.approx(0)
    low, high = (value(rows, "btx", "seconds", name) for name in ("low", "high"))
    assert low < value(rows, "btx", "seconds", "median") < high  # the machine's moods
    assert value(rows, "btx", "seconds", "mean") > value(rows, "btx", "seconds", "median")
    assert value(rows, "btx", "decode_tokens_per_second", "low") < value(
        rows, "btx", "decode_tokens_per_second", "high"
    )


def test_what_differs_between_rounds_is_the_noise_of_a_comparison():
    clock = Clock()
    own = iter([1.0, 1.0, 1.0] + [x for x in (1.0, 1.2, 1.0, 1.2) for _ in range(2)])
    works = {
        "steady": stub(clock, 1.0, 0.25),
        "moody": lambda first: (clock.spend(next(own)), first(), clock.spend(0.1)),
    }
    rows = latency_rows(measure(works, clock, rounds=4, turn_seconds=1.0), LOAD)
    assert value(rows, "moody", "seconds", "spread") > 0.02
    assert value(rows, "moody", "seconds", "mean") == pytest.approx(1.2)


def test_warm_up_and_the_first_call_of_a_turn_are_not_counted():
    clock = Clock()
    cold = stub(clock, 1.0, 0.0, first_call=100.0)
    found = measure({"cold": cold}, clock, rounds=3, warm_up=2, turn_seconds=2.0)
    assert found.turns == {"cold": [(1.0, 0.0)] * 3}
    assert len(cold.calls) == 1 + 2 + 3 * (2 + 1)  # tried, warm-up, turns


def test_arms_take_turns():
    clock, order = Clock(), []
    works = {
        name: lambda first, name=name: (order.append(name), clock.spend(1.0), first())
        for name in "ab"
    }
    measure(works, clock, rounds=2, warm_up=1, turn_seconds=1.0)
    assert "".join(order[4:]) == "aabbaabb"


def test_an_arm_that_cannot_is_left_out_with_its_reason():
    clock = Clock()

    def refused(first):
        raise SpecError("method must have a causal inference rule")

    def starved(first):
        raise torch.OutOfMemoryError("CUDA out of memory")

    works = {"smear": refused, "btx": stub(clock, 1.0, 1.0), "large": starved}
    found = measure(works, clock, rounds=1)
    assert list(found.turns) == ["btx"]
    assert "causal inference rule" in found.failures["smear"]
    assert "too little memory" in found.failures["large"]
    assert {row["arm"] for row in latency_rows(found, LOAD)} == {"btx"}
    assert latency_rows(measure({"smear": refused}, clock, rounds=1), LOAD) == []


def test_a_slow_round_changes_no_share():
    usual = [[2.0] * 5, [3.0] * 5]
    slow = [[2.0, 2.0, 8.0, 2.0, 2.0], [3.0, 3.0, 12.0, 3.0, 3.0]]
    assert paired(usual) == paired(slow) == pytest.approx([2.0, 3.0])


def test_rounds_average_their_calls_part_by_part():
    numbers = iter([1.0, 9.0, 2.0, 4.0, 9.0, 6.0, 8.0])
    turns = in_rounds([lambda: (next(numbers), 0.5)], 2, 1, 2 * 1.5)
    assert turns == [[(3.0, 0.5), (7.0, 0.5)]]


def test_quartiles():
    assert quartiles([3.0]) == (3.0, 3.0)
    assert quartiles([1.0, 2.0, 3.0, 4.0, 5.0]) == (2.0, 4.0)


@pytest.mark.parametrize("method", GENERATES)
def test_every_system_that_generates_is_timed(method):
    """Each reading of this clock is a second: a completion reads it three times."""
    ticks = iter(range(10_000))
    model = random_model(shape(), METHODS[method], 4, LOAD, "cpu")
    work = completion(model, LOAD, "float32", "cpu")
    found = measure({method: work}, lambda: next(ticks), rounds=1, warm_up=1, turn_seconds=0)
    assert found.turns == {method: [(1.0, 1.0)]} and not found.failures


@torch.no_grad()
def test_a_completion_makes_the_tokens_that_generation_makes(monkeypatch):
    model = random_model(shape(), METHODS["bam-shared-soft"], 4, LOAD, "cpu")
    made = []

    def watched(own, prompts, *rest, **options):
        for drawn in steps(own, prompts, *rest, **options):
            made.append(drawn)
            yield drawn
        made.append(prompts)

    monkeypatch.setattr("bam_lab.evaluate.latency.steps", watched)
    at = []
    completion(model, LOAD, "float32", "cpu")(lambda: at.append(len(made)))
    *tokens, prompts = made
    assert at == [1]
    assert prompts.shape == (LOAD.batch, LOAD.prompt)
    wanted = generate(model, prompts, None, LOAD.new, end=None).tokens
    assert torch.equal(torch.stack(tokens, 1), wanted)


def test_precision_lasts_as_long_as_the_completion(monkeypatch):
    model = random_model(shape(), METHODS["btx-top-1"], 4, LOAD, "cpu")
    seen = []
    hook = model.layers[0].register_forward_hook(
        lambda *_: seen.append(torch.is_autocast_enabled("cpu"))
    )
    completion(model, LOAD, "bf16-mixed", "cpu")(lambda: None)
    hook.remove()
    assert seen == [True] * LOAD.new
    assert not torch.is_autocast_enabled("cpu")


def test_an_ensemble_is_timed_too():
    clock = iter(range(100))
    work = completion(ensemble_of(btm(2)), LOAD, "float32", "cpu")
    assert timed(work, lambda: next(clock)) == (1, 1)


def test_room_for_the_load():
    own = shape()
    model = random_model(own, METHODS["btx-top-1"], 4, BAM_LOAD, "cpu")
    assert model.spec.max_seq_len == 272
    assert random_model(own, DENSE, 1, LOAD, "cpu").spec == own
    with pytest.raises(SpecError, match=r"fit into the 150 learned positions, got 256 \+ 16"):
        random_model(shape("learned"), DENSE, 1, BAM_LOAD, "cpu")
    with pytest.raises(SpecError, match="new must be at least 2"):
        completion(model, Load(1, 4, 1), "float32", "cpu")


PARALLEL = [
    "btx-top-1",
    "bam-shared-soft",
    "bam-per_expert-top-2",
    "lory-bos",
    "segment_moe-own_mean-top-1",
]


@pytest.mark.parametrize("precision", ["float32", "bf16-mixed"])
@pytest.mark.parametrize("method", PARALLEL)
@torch.no_grad()
def test_halves_computed_together_give_the_same_bits(method, precision):
    model = model_of(METHODS[method]).eval()
    tokens, blocks = text(), model.layers
    threads = set()
    hook = blocks[0].ffn.register_forward_pre_hook(lambda *_: threads.add(threading.get_ident()))
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16-mixed"):
        apart, written = model(tokens), generate(model, tokens[:, :20], None, 5, end=None)
        with together(model):
            side, spoken = model(tokens), generate(model, tokens[:, :20], None, 5, end=None)
    hook.remove()
    assert model.layers is blocks and len(threads) == 2
    assert torch.equal(apart.hidden, side.hidden)
    assert torch.equal(written.tokens, spoken.tokens)
    for one, other in zip(apart.routings, side.routings, strict=True):
        assert (one.ffn is None) == (other.ffn is None)
        assert one.ffn is None or torch.equal(one.ffn.gates, other.ffn.gates)


def test_together_is_of_parallel_blocks_and_ends():
    with (
        pytest.raises(SpecError, match=r"must be parallel .* got serial"),
        together(model_of(DENSE, "serial")),
    ):
        pass
    model = model_of(DENSE)
    blocks = model.layers
    with pytest.raises(ZeroDivisionError), together(model):
        raise ZeroDivisionError
    assert model.layers is blocks


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@torch.no_grad()
def test_streams_give_the_same_logits():
    model = model_of(METHODS["bam-shared-soft"]).eval().cuda()
    tokens = text().cuda()
    apart = model(tokens).hidden
    with together(model):
        for _ in range(20):
            torch.testing.assert_close(model(tokens).hidden, apart)


class Half(nn.Module):
    def __init__(self, clock, seconds):
        super().__init__()
        self.clock, self.seconds = clock, seconds

    def forward(self):
        self.clock.spend(self.seconds)


class Layer(nn.Module):
    def __init__(self, clock, attention, ffn):
        super().__init__()
        self.attention, self.ffn = Half(clock, attention), Half(clock, ffn)


def test_halves_are_timed_layer_by_layer():
    clock = Clock()
    layers = nn.ModuleList([Layer(clock, 3.0, 1.0), Layer(clock, 2.0, 5.0)])

    def work():
        for layer in layers:
            layer.attention()
            layer.ffn()
            clock.spend(0.5)

    found = part_seconds(layers, work, clock)
    assert (found.attention, found.ffn, found.total) == ([3.0, 2.0], [1.0, 5.0], 12.0)
    assert found.together == 12 - 1 - 2
    assert part_seconds(layers, lambda: (work(), work()), clock).attention == [6.0, 4.0]
    assert not any(half._forward_hooks for half in layers.modules())
    model = model_of(METHODS["bam-shared-soft"])
    ticks = iter(range(1000))
    halves = part_seconds(model.layers, lambda: model(text()), lambda: next(ticks))
    assert halves.attention == halves.ffn == [1, 1]
