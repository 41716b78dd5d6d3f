"""Where every tensor of a model comes from: a recipe as data, one row a tensor.

BTX (arXiv:2403.07816 §3): expert i's FFN is dense expert i's; attention, embeddings, norms and LM
head are the uniform mean; routers are random. BAM (arXiv:2408.08274 §4): attention experts too,
queries and outputs always, keys and values with `kv: per_expert`. How shared keys and values start
is not stated there; its general rule for all that is not an expert gives the mean (derived).
Sparse Upcycling (arXiv:2212.05055 §4): the seed model alone, its FFN copied into every expert of
the routed layers, everything else as it is. Lory (arXiv:2405.03133): copies in every layer, or the
FFNs of dense experts as in BTX.
Coverage, provenance, dry runs and streaming all read this table; it needs no torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from bam_lab.spec.experts import copies_seed, num_experts_of, num_sources, routed_layers
from bam_lab.spec.methods import BAMMethod, DenseMethod, MethodSpec, SparseUpcyclingMethod
from bam_lab.spec.model import ModelSpec

Shape = tuple[int, ...]
Op = Literal["take", "copy", "mean", "stack", "init"]
EXPERT_OPS: tuple[Op, ...] = ("stack", "copy")
"""Those that give the target a leading expert axis."""


@dataclass(frozen=True)
class Source:
    """Name one tensor of one dense model; `expert` is its place in the router's columns."""

    expert: int
    tensor: str


@dataclass(frozen=True)
class Origin:
    """Say how one target tensor is made.

    Attributes:
        op: `take` the only source as it is; `copy` it into every expert on a new first axis, each
            copy with normal noise of `std`; uniform `mean` of the sources; `stack` them in router-
            column order on a new first axis; `init` from a normal distribution with `std`.
        shape: of the target.
    """

    op: Op
    sources: tuple[Source, ...]
    shape: Shape
    std: float = 0.0


def dense_shapes(spec: ModelSpec) -> dict[str, Shape]:
    """Return the tensors of one dense model, by name."""
    queries, keys = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    norms = ("norm",) if spec.block == "parallel" else ("attention_norm", "ffn_norm")
    layer: dict[str, Shape] = {norm: (spec.dim,) for norm in norms} | {
        "attention.query": (queries, spec.dim),
        "attention.key": (keys, spec.dim),
        "attention.value": (keys, spec.dim),
        "attention.output": (spec.dim, queries),
        "ffn.gate": (spec.ffn_dim, spec.dim),
        "ffn.up": (spec.ffn_dim, spec.dim),
        "ffn.down": (spec.dim, spec.ffn_dim),
    }
    if spec.activation == "gelu":
        del layer["ffn.gate"]
    shapes: dict[str, Shape] = {"embedding": (spec.vocab_size, spec.dim)}
    if spec.positions == "learned":
        shapes["position"] = (spec.max_seq_len, spec.dim)
    for i in range(spec.num_layers):
        shapes |= {f"layers.{i}.{name}": shape for name, shape in layer.items()}
    shapes["final_norm"] = (spec.dim,)
    if not spec.tie_embeddings:
        shapes["lm_head"] = (spec.vocab_size, spec.dim)
    return shapes


def origins(method: MethodSpec, spec: ModelSpec, experts: Sequence[str]) -> dict[str, Origin]:
    """Return one origin for each tensor of the model that `method` makes of `experts`.

    `experts` names the dense models that are read, in router-column order; a dense method and one
    that copies the seed model read one alone. FFN routers come before attention routers, so that
    one generator gives the arms of a comparison the same FFN routers, whether or not they have
    attention experts.
    """
    count = num_experts_of(method, len(experts))
    assert len(experts) == num_sources(method, count), f"too many models: {list(experts)}"
    stacked = _stacked(method, spec)
    noise = method.copy_noise_std if isinstance(method, SparseUpcyclingMethod) else 0.0
    table = {}
    for name, shape in dense_shapes(spec).items():
        sources = tuple(Source(i, name) for i in range(len(experts)))
        match name in stacked, isinstance(method, DenseMethod) or copies_seed(method):
            case True, True:
                table[name] = Origin("copy", sources, (count, *shape), noise)
            case True, False:
                table[name] = Origin("stack", sources, (count, *shape))
            case False, True:
                table[name] = Origin("take", sources, shape)
            case _:
                table[name] = Origin("mean", sources, shape)
    for layer in _routed(method, spec):
        assert not isinstance(method, DenseMethod)
        table[f"{layer}.router"] = Origin("init", (), (count, spec.dim), method.router_init_std)
    return table


def _stacked(method: MethodSpec, spec: ModelSpec) -> set[str]:
    """Return the dense tensors that become experts."""
    own = {"ffn": {"gate", "up", "down"}, "attention": {"query", "output"}}
    if isinstance(method, BAMMethod) and method.kv == "per_expert":
        own["attention"] |= {"key", "value"}
    return {
        f"{layer}.{name}"
        for layer in _routed(method, spec)
        for name in own[layer.rpartition(".")[2]]
    }


def _routed(method: MethodSpec, spec: ModelSpec) -> list[str]:
    """Return the modules that have a router, in the order in which these are drawn."""
    parts = ("ffn", "attention") if isinstance(method, BAMMethod) else ("ffn",)
    layers = routed_layers(method, spec.num_layers)
    return [f"layers.{i}.{part}" for part in parts for i in layers]


def check_coverage(
    table: Mapping[str, Origin],
    target: Mapping[str, Shape],
    experts: Sequence[Mapping[str, Shape]],
) -> None:
    """Check the law that every target tensor has one origin and every source tensor one use.

    Raises:
        ValueError: naming every tensor that breaks it.
    """
    used = {
        (source.expert, source.tensor) for origin in table.values() for source in origin.sources
    }
    held = {(i, name) for i, shapes in enumerate(experts) for name in shapes}
    problems = [f"{name} has no origin" for name in target if name not in table]
    problems += [f"{name} is not in the target" for name in table if name not in target]
    problems += [
        f"{name} must have shape {target[name]}, its origin gives {origin.shape}"
        for name, origin in table.items()
        if name in target and target[name] != origin.shape
    ]
    problems += [f"expert {i} has no {name}" for i, name in sorted(used - held)]
    problems += [f"{name} of expert {i} goes nowhere" for i, name in sorted(held - used)]
    for name, origin in table.items():
        own = origin.shape[1:] if origin.op in EXPERT_OPS else origin.shape
        problems += [
            f"{source.tensor} of expert {source.expert} must have shape {own} for {name}"
            for source in origin.sources
            if (source.expert, source.tensor) in held
            and experts[source.expert][source.tensor] != own
        ]
    if problems:
        raise ValueError("\n".join(problems))
