"""Lory's merged FFN against the plain loop: what routes, what learns from it, decoding."""

import pytest
import torch

from bam_lab.model.context import Prompt
from bam_lab.model.lory import MergedFFN, merged_ffn_reference, start, step
from bam_lab.spec.segments import LoryMethod
from tests.model.cases import EXPERTS, SEGMENT, context_of, lory, model_of, shape, text

FIRST = ("own_mean", "bos", "uniform")
RULES = [(first, "causal") for first in FIRST] + [("own_mean", "prefix"), ("bos", "prefix")]
LENGTHS = [5 * SEGMENT, 5 * SEGMENT - 3, SEGMENT, 4]


def random_ffn(first_segment, routing="causal", experts=EXPERTS):
    method: LoryMethod = lory(first_segment, routing=routing)
    module = MergedFFN(shape(), method, experts)
    generator = torch.Generator().manual_seed(0)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=generator)
    return module


def rows(length, seed=1, count=2):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, length, 16, generator=generator).requires_grad_()


def inputs_of(module, length, **settings):
    """Return rows of `length` tokens, and the place of `bos` before them where there is one."""
    return rows(length + module.bos, **settings)


@pytest.mark.parametrize(("first", "routing"), RULES)
@pytest.mark.parametrize("length", LENGTHS)
def test_batched_segments_equal_the_loop(first, routing, length):
    """Whole segments, a shorter last one, one alone, and less than one."""
    module = random_ffn(first, routing)
    x = inputs_of(module, length)
    y, _ = module(x, x, context_of(x.shape[1]))
    wanted = merged_ffn_reference(module, x)
    torch.testing.assert_close(y, wanted)
    weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(2))
    inputs = (x, module.gate, module.up, module.down)
    if length > SEGMENT or first == "bos":
        inputs += (module.router,)
    got = torch.autograd.grad((y * weights).mean(1).sum(), inputs)
    want = torch.autograd.grad((wanted * weights).mean(1).sum(), inputs)
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("experts", [4, 8, 32])
def test_four_to_thirty_two_experts(experts):
    module = random_ffn("own_mean", experts=experts)
    x = rows(3 * SEGMENT)
    y, routing = module(x, x, context_of(x.shape[1]))
    assert routing.gates.shape == (2, 3, experts)
    torch.testing.assert_close(y, merged_ffn_reference(module, x))


@pytest.mark.parametrize("first_segment", FIRST)
def test_a_segment_is_routed_by_the_mean_of_the_one_before(first_segment):
    module = random_ffn(first_segment)
    x = inputs_of(module, 4 * SEGMENT)
    gates = module(x, x, context_of(x.shape[1]))[1].gates
    tokens = x[:, module.bos :]
    means = tokens.unflatten(1, (4, SEGMENT)).mean(2)
    own = (means @ module.router.T).softmax(-1)
    torch.testing.assert_close(gates[:, 1 + module.bos :], own[:, :-1])
    first = {
        "own_mean": own[:, 0],
        "bos": (x[:, 0] @ module.router.T).softmax(-1),
        "uniform": torch.full_like(own[:, 0], 1 / EXPERTS),
    }[first_segment]
    for decision in range(1 + module.bos):
        torch.testing.assert_close(gates[:, decision], first)


@pytest.mark.parametrize(("first_segment", "routing"), RULES)
def test_what_the_first_segments_loss_teaches_the_router(first_segment, routing):
    """Nothing, but for the place of `bos`, whose decision sees no token."""
    module = random_ffn(first_segment, routing)
    x = inputs_of(module, 3 * SEGMENT)
    first = module(x, x, context_of(x.shape[1]))[0][:, : SEGMENT + module.bos]
    first.square().sum().backward()
    gradient = 0.0 if module.router.grad is None else float(module.router.grad.norm())
    assert (gradient > 0) == (first_segment == "bos")
    assert module.gate.grad.norm() > 0


def test_gates_sum_to_one_in_float32_under_autocast():
    module, x = random_ffn("own_mean"), rows(3 * SEGMENT)
    with torch.autocast("cpu", torch.bfloat16):
        y, routing = module(x.bfloat16(), x, context_of(x.shape[1]))
    assert y.dtype == torch.bfloat16
    sums = routing.gates.sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums))


def test_one_end_of_text_stands_before_a_sequence_and_is_not_returned():
    """It routes the first segment, and every hidden state depends on its embedding."""
    model, tokens = model_of(lory("bos")), text(2, 40) % 60 + 1
    before = model(tokens)
    assert before.hidden.shape[1] == 40
    assert before.routings[0].ffn.gates.shape[1] == 1 + 4
    other = tokens.clone()
    other[:, -1] = other[:, -1] % 60 + 1
    changed = (model(other).hidden - before.hidden).abs().amax(dim=(0, 2)) > 1e-4
    assert changed.tolist() == [False] * 39 + [True]
    with torch.no_grad():
        model.embedding[0] += 1.0
    after = model(tokens)
    assert (after.hidden - before.hidden).abs().amin(dim=(0, 1)).max() > 0
    assert not torch.allclose(after.routings[0].ffn.gates[:, 1], before.routings[0].ffn.gates[:, 1])


def decoded(module, x, prompts, rule):
    """Read left-aligned prompts, then one token of each row at a time."""
    bos, longest = module.bos, max(prompts)
    lengths = torch.tensor(prompts) + bos
    padded = torch.zeros(len(prompts), longest + bos, 16)
    for row, length in enumerate(lengths):
        padded[row, :length] = x[row, :length]
    y, state = start(module, padded, padded, lengths, rule)
    outputs = [list(y[row, :length]) for row, length in enumerate(lengths)]
    rest = x.shape[1] - longest - bos
    for index in range(rest):
        token = torch.stack([x[row, length + index] for row, length in enumerate(lengths)])
        y, state = step(module, token.unsqueeze(1), token.unsqueeze(1), state, rule)
        for row, output in enumerate(y[:, 0]):
            outputs[row].append(output)
    return [torch.stack(row) for row in outputs], state


@pytest.mark.parametrize("rule", ["prompt", "segment"])
@pytest.mark.parametrize(("first", "routing"), RULES)
@torch.no_grad()
def test_decoding_equals_the_loop(first, routing, rule):
    """Prompts that end inside the first segment, at a border, and inside a later one."""
    module = random_ffn(first, routing)
    prompts = (3, SEGMENT, 2 * SEGMENT, 2 * SEGMENT + 1)
    x = inputs_of(module, 5 * SEGMENT, count=len(prompts))
    outputs, state = decoded(module, x, prompts, rule)
    assert state.gate_up.shape == (4, 48, 16) and state.down.shape == (4, 16, 24)
    for row, length in enumerate(prompts):
        own = x[row : row + 1, : len(outputs[row])]
        wanted = merged_ffn_reference(module, own, Prompt(length, rule))
        torch.testing.assert_close(outputs[row], wanted[0])


@pytest.mark.parametrize("rule", ["prompt", "segment"])
@pytest.mark.parametrize(("first", "routing"), RULES)
@pytest.mark.parametrize("length", [3, SEGMENT, 2 * SEGMENT + 4])
@torch.no_grad()
def test_whole_rows_after_a_prompt_equal_the_loop(first, routing, rule, length):
    module = random_ffn(first, routing)
    x = inputs_of(module, 4 * SEGMENT)
    context = context_of(x.shape[1])._replace(prompt=Prompt(length, rule))
    torch.testing.assert_close(
        module(x, x, context)[0], merged_ffn_reference(module, x, context.prompt)
    )


@torch.no_grad()
def test_the_rules_differ_after_a_prompt_and_not_before():
    model, tokens = model_of(lory("bos")), text(2, 60)
    prompt, segment = (
        model(tokens, prompt=Prompt(25, rule)).hidden for rule in ("prompt", "segment")
    )
    torch.testing.assert_close(prompt[:, :25], segment[:, :25])
    torch.testing.assert_close(segment, model(tokens).hidden)
    assert not torch.allclose(prompt[:, 25:], segment[:, 25:])
