"""Where every tensor of a model comes from: a recipe as data, one row a tensor.

BTX (arXiv:2403.07816 §3): expert i's FFN is dense expert i's; attention, embeddings, norms and LM
head are the uniform mean; routers are random. BAM (arXiv:2408.08274 §4): attention experts too,
queries and outputs always, keys and values with `kv: per_expert`. How shared keys and values start
is not stated there; its general rule for all that is not an expert gives the mean (derived).
Sparse Upcycling (arXiv:2212.05055 §4): the seed model alone, its FFN copied into every expert of
the routed layers, everything else as it is. Lory (arXiv:2405.03133): copies in every layer, or the
FFNs of dense experts as in BTX. BTX's other layouts (arXiv:2403.07816 §4.3) cut every FFN along its
hidden channels: gate and up by rows, down by columns. A shared expert uses each dense FFN a second
time (`spec/mixtures.py` says which scale it has). `start: scratch` reads no dense model: every
tensor is drawn, under the names and shapes of the same mixture.
Coverage, provenance, dry runs and streaming all read this table; it needs no torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bam_lab.spec.experts import (
    copies_seed,
    expert_tensors,
    ffn_parts,
    has_bias,
    has_shared,
    hash_router,
    num_experts_of,
    num_sources,
    relu_router,
    routed_modules,
    starts_anew,
)
from bam_lab.spec.methods import (
    AverageMethod,
    BTXMethod,
    DenseMethod,
    MethodSpec,
    SoftMoEMethod,
    SparseUpcyclingMethod,
    Unrouted,
)
from bam_lab.spec.model import ModelSpec

Shape = tuple[int, ...]
SHARED = ".shared."
"""In the name of every tensor of a shared expert."""
Op = Literal["take", "copy", "reinit", "mean", "stack", "blend", "init", "ones", "zeros", "hash"]
EXPERT_OPS: tuple[Op, ...] = ("stack", "copy", "reinit", "blend")
"""Those that give the target a leading expert axis."""


@dataclass(frozen=True)
class Cut:
    """Take part `part` (from 0) of `parts` equal ones along `axis` of a dense tensor."""

    axis: int
    part: int
    parts: int


@dataclass(frozen=True)
class Source:
    """Name one tensor of one dense model, the `expert`-th that is read, or a cut of it."""

    expert: int
    tensor: str
    cut: Cut | None = None


@dataclass(frozen=True)
class Origin:
    """Say how one target tensor is made.

    Attributes:
        op: `take` the only source as it is; `copy` it into every expert on a new first axis, its
            cuts in turn, each with normal noise of `std`; `reinit`: the same, then a share of each
            copy's hidden channels drawn anew from the statistics of what they were; `mean` of the
            sources, by `weights` where given; `stack` them in router-column order on a new first
            axis; `blend`: stack after joining, for each expert in turn, one cut of every model;
            `init` from a normal distribution with `std`; `ones`, `zeros`; `hash`: the table of a
            hash router, made of the target's own embedding.
        shape: of the target.
        scale: factor on what the sources give, and on `ones`.
        anew, anew_std: how many experts, the last ones, are drawn from a normal distribution
            instead of copied.
        reinit_share: that share, where `op` is `reinit`.
        repeat: how many neighbouring rows of an `init` are alike.
    """

    op: Op
    sources: tuple[Source, ...]
    shape: Shape
    std: float = 0.0
    weights: tuple[float, ...] = ()
    scale: float = 1.0
    anew: int = 0
    anew_std: float = 0.0
    reinit_share: float = 0.0
    repeat: int = 1

    @property
    def drawn(self) -> bool:
        """Return whether another generator would give other numbers."""
        return self.op in ("init", "reinit") or self.std > 0 or self.anew > 0


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
    that copies the seed model read one alone, one that starts anew none. FFN routers come before
    attention routers, so that one generator gives the arms of a comparison the same FFN routers,
    whether or not they have attention experts.
    """
    if isinstance(method, AverageMethod):
        return _averaged(method, spec, experts)
    count = num_experts_of(method, len(experts))
    assert len(experts) == num_sources(method, count), f"too many models: {list(experts)}"
    stacked = expert_tensors(method, spec.num_layers)
    table = {}
    for name, shape in dense_shapes(spec).items():
        sources = tuple(Source(i, name) for i in range(len(experts)))
        if starts_anew(method):
            table[name] = _drawn(method, spec, name, shape, count if name in stacked else 0)
            continue
        match name in stacked, isinstance(method, DenseMethod) or copies_seed(method):
            case True, True:
                table[name] = _copied(method, spec, name, shape, count)
            case True, False:
                table[name] = _stacked(method, name, shape, len(experts))
            case False, True:
                table[name] = Origin("take", sources, shape)
            case _:
                table[name] = Origin("mean", sources, shape)
    for module in routed_modules(method, spec.num_layers):
        assert not isinstance(method, Unrouted)
        if module.endswith(".ffn") and hash_router(method) is not None:
            table[f"{module}.hash"] = Origin("hash", (), (spec.vocab_size,))
            continue
        slots = (method.slots_per_expert,) if isinstance(method, SoftMoEMethod) else ()
        shape = (count, *slots, spec.dim)
        # Parts of one copy are chosen together at the start; from scratch there is no copy.
        rows = 1 if starts_anew(method) else getattr(method, "granularity", 1)
        table[f"{module}.router"] = Origin("init", (), shape, method.router_init_std, repeat=rows)
        if module.endswith(".ffn") and has_bias(method):
            table[f"{module}.bias"] = Origin("zeros", (), (count,))
    if (relu := relu_router(method)) is not None:
        table["l1_weight"] = Origin("ones", (), (), scale=relu.l1_init)
    if has_shared(method):
        for module in routed_modules(method, spec.num_layers):
            table |= _shared(method, spec, module, len(experts))
    return table


def _averaged(method: AverageMethod, spec: ModelSpec, experts: Sequence[str]) -> dict[str, Origin]:
    weights = tuple(method.weights[name] for name in experts) if method.weights else ()
    places = range(len(experts))
    return {
        name: Origin("mean", tuple(Source(i, name) for i in places), shape, weights=weights)
        for name, shape in dense_shapes(spec).items()
    }


def _stacked(method: MethodSpec, name: str, shape: Shape, models: int) -> Origin:
    """Return the experts made of tensor `name` of several dense models, whole or cut."""
    axis, parts, scale = _hidden_axis(name), ffn_parts(method), _sharing(method, name)
    if isinstance(method, BTXMethod) and method.expert_layout == "blended":
        cuts = [(i, Cut(axis, n, models)) for n in range(models) for i in range(models)]
        blended = tuple(Source(i, name, cut) for i, cut in cuts)
        return Origin("blend", blended, (models, *shape), scale=scale)
    if parts == 1:
        sources = tuple(Source(i, name) for i in range(models))
        return Origin("stack", sources, (models, *shape), scale=scale)
    cuts = [(i, Cut(axis, n, parts)) for i in range(models) for n in range(parts)]
    own = _divided(shape, axis, parts)
    sources = tuple(Source(i, name, cut) for i, cut in cuts)
    return Origin("stack", sources, (len(cuts), *own), scale=scale)


def _copied(method: MethodSpec, spec: ModelSpec, name: str, shape: Shape, count: int) -> Origin:
    """Return the experts made of copies of tensor `name` of the seed model, whole or cut."""
    if not isinstance(method, SparseUpcyclingMethod):
        return Origin("copy", (Source(0, name),), (count, *shape))
    parts, axis = method.granularity, _hidden_axis(name)
    cuts = [Cut(axis, n, parts) for n in range(parts)] if parts > 1 else [None]
    copied = method.copied_experts or method.num_experts
    return Origin(
        "reinit" if method.reinit_share else "copy",
        tuple(Source(0, name, cut) for cut in cuts),
        (count, *_divided(shape, axis, parts)),
        method.copy_noise_std,
        # A token's gates are shared by the parts of a copy, so that each would weigh 1 / parts.
        scale=(parts if name.endswith(".down") else 1) * _sharing(method, name),
        anew=count - copied * parts,
        anew_std=spec.init_std,
        reinit_share=method.reinit_share,
    )


def _drawn(method: MethodSpec, spec: ModelSpec, name: str, shape: Shape, experts: int) -> Origin:
    """Return the origin of a tensor that no dense model gives; 0 experts: it is not stacked."""
    if name.endswith("norm"):
        return Origin("ones", (), shape)
    if not experts:
        return Origin("init", (), shape, spec.init_std)
    own = _divided(shape, _hidden_axis(name), ffn_parts(method))
    return Origin("init", (), (experts, *own), spec.init_std)


def _shared(method: MethodSpec, spec: ModelSpec, module: str, models: int) -> dict[str, Origin]:
    """Return the origins of the expert of one routed FFN that every token uses."""
    table = {}
    for part, shape in (
        ("gate", (spec.ffn_dim, spec.dim)),
        ("up", (spec.ffn_dim, spec.dim)),
        ("down", (spec.dim, spec.ffn_dim)),
    ):
        name = f"{module}.{part}"
        sources = tuple(Source(i, name) for i in range(models))
        scale = _sharing(method, name)
        op: Op = "take" if copies_seed(method) else "mean"
        made = Origin(op, sources, shape, scale=scale)
        drawn = Origin("init", (), shape, spec.init_std)
        table[f"{module}{SHARED}{part}"] = drawn if starts_anew(method) else made
    return table


def _sharing(method: MethodSpec, name: str) -> float:
    """Return the factor on a dense FFN's tensor where a shared and a routed expert add up to it."""
    return 0.5 if has_shared(method) and name.endswith(".down") else 1.0


def _hidden_axis(name: str) -> int:
    """Return the axis of an FFN's hidden channels."""
    return 1 if name.endswith(".down") else 0


def _divided(shape: Shape, axis: int, parts: int) -> Shape:
    return tuple(size // parts if i == axis else size for i, size in enumerate(shape))
