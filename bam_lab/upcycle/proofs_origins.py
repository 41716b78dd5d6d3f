"""What a mixture must be by its construction, whatever its weights.

- `origins`: each tensor is what its one origin makes of the dense models, bit by bit.
- `copies`: a mixture of equal experts is the dense model whose routed layers' outputs are
  multiplied by the token's sum of gates; where gates sum to 1 that is the dense model itself. An
  expert that every token shares adds its own output, not multiplied.
- `permutation`: experts and router columns moved together move no logit.
- `one expert`: a router forced to one expert gives the dense model with that expert's tensors,
  with what an expert that every token shares adds, and multiplied where a gate is no share of 1.

What a method breaks for a known reason is declared in `spec/laws.py`, as for the other laws.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bam_lab.model.checkpoint import build
from bam_lab.model.transformer import Output, Transformer
from bam_lab.spec.experts import expert_tensors, ffn_parts, has_bos, num_sources, relu_router
from bam_lab.spec.laws import Identity, broken_identities
from bam_lab.spec.methods import DenseMethod
from bam_lab.spec.model import END_OF_TEXT_ID
from bam_lab.upcycle.execute import State, upcycle
from bam_lab.upcycle.origins import dense_shapes, origins
from bam_lab.upcycle.probe import TOLERANCE, by_place

DENSE = DenseMethod(method="dense")
_CONSTANT = 5.0  # of coordinate 0, by which a router is forced; embeddings are of order 1
_FORCE = 100.0
Proof = Callable[[Transformer, Tensor], tuple[float, dict[str, Any]]]


def coverage(model: Transformer, sources: Sequence[State]) -> dict[str, Any]:
    """Return the tensors by origin, and those that are not what their origin makes of `sources`.

    Drawn tensors, noisy copies and tables of hashes are not compared; without sources none is.
    """
    names = [str(i) for i in range(num_sources(model.method, model.num_experts))]
    table, state = origins(model.method, model.spec, names), model.state_dict()
    differing: list[str] = []
    if sources:
        even = torch.ones(model.spec.vocab_size, dtype=torch.long)  # frequencies, for a hash alone
        made = upcycle(model.method, model.spec, sources, torch.Generator().manual_seed(0), even)
        fixed = [n for n, origin in table.items() if origin.op != "hash" and not origin.drawn]
        differing = [name for name in fixed if not torch.equal(made[name], state[name])]
    return {
        "tensors": len(table),
        "by_origin": dict(Counter(origin.op for origin in table.values())),
        "differing": differing,
        "holds": set(table) == set(state) and not differing,
    }


@torch.no_grad()
def identities(probe: Transformer, rows: Tensor) -> dict[str, Any]:
    """Return identity -> the largest change of a logit, whether it holds, and what is declared.

    Args:
        probe: a mixture whose experts differ and whose routers have opinions.
        rows: token windows [N, T+1].
    """
    tokens = rows[:, :-1]
    tried: dict[Identity, Proof] = {"permutation": _permutation}
    if ffn_parts(probe.method) == 1:  # else an expert is a part of a dense FFN
        tried |= {"copies": _copies, "one expert": _one_expert}
    declared = broken_identities(probe.method)
    return {name: _fact(*proof(probe, tokens), declared.get(name)) for name, proof in tried.items()}


def _fact(change: float, told: dict[str, Any], why: str | None) -> dict[str, Any]:
    return {"max_logit_change": change, "holds": change <= TOLERANCE, "declared": why} | told


def _copies(probe: Transformer, tokens: Tensor) -> tuple[float, dict[str, Any]]:
    """Compare copies of one expert with its dense model; `scaled`: gates do not sum to 1."""
    dense, state = expert_state(probe, 0), probe.state_dict()
    stacked = {name: dense[name].expand_as(state[name]) for name in _stacked(probe)}
    mixture = build(probe.spec, probe.method, probe.num_experts, state | stacked)
    output = mixture(tokens)
    alone, places = _dense(probe, dense, tokens)
    with _scaled(alone, mixture, output, places.shape[1]) as scaled:
        wanted = _logits(alone, places)[:, -tokens.shape[1] :]
    return _difference(mixture.logits(output.hidden), wanted), {"scaled": scaled}


def _dense(mixture: Transformer, state: State, tokens: Tensor) -> tuple[Transformer, Tensor]:
    """Return a dense model of the mixture's shape, and what it is to read.

    A mixture that puts an end-of-text token before the sequence is compared with a dense model that
    reads it too; learned positions are the tokens' alone.
    """
    if not has_bos(mixture.method):
        return build(mixture.spec, DENSE, 1, state), tokens
    spec = mixture.spec.model_copy(update={"max_seq_len": mixture.spec.max_seq_len + 1})
    longer = {name: F.pad(state[name], (0, 0, 1, 0)) for name in state if name == "position"}
    places = F.pad(tokens, (1, 0), value=END_OF_TEXT_ID)
    return build(spec, DENSE, 1, {**state, **longer}), places


@contextmanager
def _scaled(
    dense: Transformer, mixture: Transformer, output: Output, places: int, multiply: bool = True
) -> Iterator[bool]:
    """Multiply the outputs of a dense model's layers by the sums of a mixture's gates, if asked.

    Then they get what the mixture's shared experts add. Yields whether anything was multiplied.
    """
    hooks, scaled = [], False
    layers = zip(dense.layers, mixture.layers, output.routings, strict=True)
    for layer, mixed, routings in layers:
        for name, routing in routings._asdict().items():
            if routing is None:
                continue
            scale = by_place(routing.gates.sum(-1, keepdim=True), mixture.method, places)
            shared = getattr(getattr(mixed, name), "shared", None)
            multiplied = multiply and not torch.allclose(scale, torch.ones_like(scale))
            if multiplied or shared is not None:
                hooks.append(_change(getattr(layer, name), scale if multiplied else 1.0, shared))
            scaled |= multiplied
    try:
        yield scaled
    finally:
        for hook in hooks:
            hook.remove()


def _change(module: nn.Module, scale: Tensor | float, shared: nn.Module | None) -> Any:
    def changed(_: nn.Module, inputs: tuple[Any, ...], made: tuple[Any, ...]) -> tuple[Any, ...]:
        more = 0.0 if shared is None else shared(*inputs)[0]
        return made[0] * scale + more, *made[1:]

    return module.register_forward_hook(changed)


def _permutation(probe: Transformer, tokens: Tensor) -> tuple[float, dict[str, Any]]:
    order = list(range(probe.num_experts))[::-1]
    stacked, state = _stacked(probe), probe.state_dict()
    rows = (".router", ".bias")
    moved = {n: t[order] for n, t in state.items() if n in stacked or n.endswith(rows)}
    places = torch.tensor(order).argsort()
    moved |= {n: places[t] for n, t in state.items() if n.endswith(".hash")}
    other = build(probe.spec, probe.method, probe.num_experts, state | moved)
    return _difference(_logits(other, tokens), _logits(probe, tokens)), {}


def _one_expert(probe: Transformer, tokens: Tensor) -> tuple[float, dict[str, Any]]:
    """Force the last expert through a coordinate that is the same at every token.

    Normed inputs have no constant direction of their own.
    """
    last, state = probe.num_experts - 1, dict(probe.state_dict())
    free = relu_router(probe.method) is not None
    for name, tensor in state.items():
        state[name] = tensor = tensor.clone()
        if name == "embedding":
            tensor[:, 0] = _CONSTANT
        elif name == "position":
            tensor[:, 0] = 0.0
        elif name.endswith("norm"):
            tensor[0] = 1.0
        elif name.endswith((".attention.output", ".ffn.down", ".shared.down")):
            tensor[..., 0, :] = 0.0
        elif name.endswith(".router"):
            # An open ReLU gate is the logit itself: a large one would leave few digits of the rest.
            force = 1.0 if free and name.endswith(".ffn.router") else _FORCE
            tensor.zero_()
            tensor[:, 0] = -force
            tensor[last, 0] = force
        elif name.endswith(".hash"):
            tensor.fill_(last)
    mixture = build(probe.spec, probe.method, probe.num_experts, state)
    output = mixture(tokens)
    dense, places = _dense(probe, expert_state(mixture, last), tokens)
    with _scaled(dense, mixture, output, places.shape[1], multiply=free):
        wanted = _logits(dense, places)[:, -tokens.shape[1] :]
    return _difference(mixture.logits(output.hidden), wanted), {}


def expert_state(model: Transformer, expert: int) -> dict[str, Tensor]:
    """Return the dense model that has one expert's tensors and all that is not an expert's."""
    state: Mapping[str, Tensor] = model.state_dict()
    stacked = _stacked(model)
    return {
        name: state[name][expert] if name in stacked else state[name]
        for name in dense_shapes(model.spec)
    }


def _stacked(model: Transformer) -> frozenset[str]:
    return expert_tensors(model.method, model.spec.num_layers)


def _logits(model: Transformer, tokens: Tensor) -> Tensor:
    return model.logits(model(tokens).hidden)


def _difference(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).abs().max())
