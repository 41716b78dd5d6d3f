"""Prove an ablation's systems: on the store's own models, else on random ones of their shape.

Imported where it is used: it needs torch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psutil
import torch
from torch import Tensor

from bam_lab.cost.match import settled
from bam_lab.cost.params import count
from bam_lab.errors import InputError
from bam_lab.model import checkpoint
from bam_lab.model.transformer import Transformer, initialise
from bam_lab.record.files import intact
from bam_lab.record.store import Store
from bam_lab.run.calibration import calibrated
from bam_lab.run.reproduce import current_graph
from bam_lab.run.stage import Graph, Stage
from bam_lab.run.stages_common import TOKENS, load_model
from bam_lab.run.stages_upcycle import receipt_windows
from bam_lab.spec.experts import is_trained, num_experts_of, parts_of, shape_of, sources_of
from bam_lab.spec.methods import DenseMethod, MethodSpec
from bam_lab.spec.model import ModelSpec
from bam_lab.spec.resolved import ResolvedAblation
from bam_lab.train.numerics import prepare
from bam_lab.upcycle.execute import upcycle
from bam_lab.upcycle.receipt import prove

DENSE = DenseMethod(method="dense")
ROWS = 4
"""Random windows that a proof reads."""
_COPIES = 6  # of a model's weights that stand in memory at once: itself, probe, gradients, builds


@dataclass(frozen=True)
class Proved:
    """Hold what was proved of one arm.

    Attributes:
        part: which model of an arm that has several, by its method; empty for an arm of one.
        models: where they are from: a stage of the store, or "random".
    """

    arm: str
    part: str
    models: str
    facts: dict[str, Any]


def unproved(method: MethodSpec) -> str:
    """Return why an arm has nothing to prove; empty for one that has."""
    return "" if is_trained(method) else "puts trained models together and trains none"


def prove_arm(resolved: ResolvedAblation, store: Store, arm: str) -> Iterator[Proved]:
    """Prove each model of an arm.

    Raises:
        InputError: the model does not fit in memory, or a folder of the store is damaged.
    """
    prepare(resolved.scale.phases.mixture.threads)
    graph = current_graph(resolved, store, 1)
    resolved = settled(calibrated(resolved, store)).of(arm)
    method = resolved.arms[arm]
    stage = _finished(graph, store, arm)
    if stage is not None:
        yield Proved(arm, "", stage.key, _prove_stage(stage, graph, store))
        return
    parts = parts_of(method)
    for part in parts:
        facts = _prove_random(part, shape_of(part, resolved.model), _names(resolved, part))
        yield Proved(arm, part.method if len(parts) > 1 else "", "random", facts)


def _names(resolved: ResolvedAblation, method: MethodSpec) -> Sequence[str]:
    return sources_of(method, resolved.recipe.mixture.experts)


def _finished(graph: Graph, store: Store, arm: str) -> Stage | None:
    """Return the arm's upcycling of the first replicate if the store has it and what it read."""
    if not graph.known:
        return None
    for stage in (*graph.stages.values(), *graph.again):
        if (stage.name, stage.arm, stage.replicate) == ("upcycle", arm, 0):
            needed = [stage, *graph.needs(stage)]
            return stage if all(store.is_whole(one.key) for one in needed) else None
    return None


def _prove_stage(stage: Stage, graph: Graph, store: Store) -> dict[str, Any]:
    inputs = {role: store.stage(graph.stages[key].key) for role, key in stage.inputs.items()}
    names = stage.settings["experts"]
    sources = [(name, load_model(inputs[f"expert{i}"])) for i, name in enumerate(names)]
    model = load_model(store.stage(stage.key))
    tokens, domains = inputs["tokenizer"] / TOKENS, stage.settings["domains"]
    with intact(inputs["tokenizer"]):
        windows = receipt_windows(tokens, domains, model.spec)
    return prove(model, sources, windows)


def _prove_random(method: MethodSpec, spec: ModelSpec, names: Sequence[str]) -> dict[str, Any]:
    """Prove a model made of distinct random dense models, on random tokens."""
    experts = num_experts_of(method, len(names))
    _check_memory(count(spec, method, experts).total)
    # Activations of order 1 at any width.
    spec = spec.model_copy(update={"init_std": spec.dim**-0.5})
    dense = {name: _random(spec, seed) for seed, name in enumerate(dict.fromkeys(names))}
    sources = [(name, dense[name]) for name in names]
    states = [source.state_dict() for _, source in sources]
    windows = _random_windows(spec)
    counts = torch.bincount(torch.cat(list(windows.values())).flatten(), minlength=spec.vocab_size)
    state = upcycle(method, spec, states, torch.Generator().manual_seed(0), counts)
    return prove(checkpoint.build(spec, method, experts, state), sources, windows)


def _random(spec: ModelSpec, seed: int) -> Transformer:
    return initialise(Transformer(spec, DENSE, 1), torch.Generator().manual_seed(seed))


def _random_windows(spec: ModelSpec) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = (ROWS // 2, spec.max_seq_len + 1)
    tokens = [torch.randint(spec.vocab_size, shape, generator=generator) for _ in range(2)]
    return {"random": tokens[0], "random too": tokens[1]}


def _check_memory(params: int) -> None:
    needed, free = _COPIES * 4 * params, psutil.virtual_memory().available
    if needed > free:
        raise InputError(
            f"the models to prove must fit in memory, got about {needed / 1e9:.0f} GB of "
            f"{free / 1e9:.0f} GB. Prove the same arms at a smaller scale: --scale nano."
        )
