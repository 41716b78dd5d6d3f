"""The transformer, dense or a mixture: one class, told by its method what a block holds.

Parameters, by name (E experts stacked in front where the method has them, in router-column order):
`embedding`, `position` (learned positions only), `lm_head` (absent when tied), `final_norm`, and
for each layer `layers.<i>.`: `norm` (parallel) or `attention_norm`, `ffn_norm` (serial);
`attention.{query,key,value,output}`; `ffn.{gate,up,down}` (no gate with GELU); `attention.router`,
`ffn.router` (neither stacked nor routed in a layer that stays dense); `ffn.shared.{gate,up,down}`,
never stacked; `l1_weight` (ReLU gates). Construction leaves them
uninitialised (and costs nothing on the meta device); `initialise` fills them.

Shapes: B batch, T tokens, D dim, V vocab.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from bam_lab.errors import SpecError
from bam_lab.model.block import Block, LayerRouting
from bam_lab.model.context import Cache, Cached, Context, Draw, Prompt, document_starts
from bam_lab.model.ffn import FFNExperts
from bam_lab.model.hashing import hash_table
from bam_lab.model.layers import Rope, norm, rope_tables, to_compute
from bam_lab.spec.experts import (
    frozen_tensors,
    has_bos,
    num_experts_of,
    num_sources,
    relu_router,
    shape_of,
)
from bam_lab.spec.methods import MethodSpec, Unrouted
from bam_lab.spec.misfits import misfits
from bam_lab.spec.model import END_OF_TEXT_ID, ModelSpec
from bam_lab.spec.routers import HashRouter


class Output(NamedTuple):
    """Hold the last hidden state, normed, and every layer's routings."""

    hidden: Float[Tensor, "B T D"]
    routings: tuple[LayerRouting, ...]


class Transformer(nn.Module):
    """Map tokens to hidden states; the LM head is left to the loss, which never holds all logits.

    Args:
        spec: the shape of the seed model.
        method: dense or which mixture.
        num_experts: experts of the mixture; 1 for a dense model.

    Attributes:
        l1_weight: coefficient of the L1 loss of ReLU gates; `balance.py` moves it.
    """

    rope_cos: Tensor
    rope_sin: Tensor
    l1_weight: Tensor | None

    def __init__(self, spec: ModelSpec, method: MethodSpec, num_experts: int):
        """Build all layers, their weights uninitialised.

        Raises:
            SpecError: the method's settings do not fit the shape.
        """
        super().__init__()
        if problems := [f"method.{key} {text}" for key, text in misfits(method, spec, num_experts)]:
            raise SpecError(problems)
        assert num_experts == num_experts_of(method, num_sources(method, num_experts))
        spec = shape_of(method, spec)
        self.spec, self.method, self.num_experts = spec, method, num_experts
        self.embedding = nn.Parameter(torch.empty(spec.vocab_size, spec.dim))
        if spec.positions == "learned":
            self.position = nn.Parameter(torch.empty(spec.max_seq_len, spec.dim))
        else:
            places = spec.max_seq_len + has_bos(method)
            cos, sin = rope_tables(places, spec.head_dim, spec.rope_theta)
            self.register_buffer("rope_cos", cos, persistent=False)
            self.register_buffer("rope_sin", sin, persistent=False)
        self.layers = nn.ModuleList(
            Block(spec, method, num_experts, index) for index in range(spec.num_layers)
        )
        relu = relu_router(method)
        self.register_buffer("l1_weight", None if relu is None else torch.tensor(relu.l1_init))
        self.final_norm = nn.Parameter(torch.empty(spec.dim))
        if not spec.tie_embeddings:
            self.lm_head = nn.Parameter(torch.empty(spec.vocab_size, spec.dim))
        for name in frozen_tensors(method, spec.num_layers):
            self.get_parameter(name).requires_grad_(False)

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        draw: Draw | None = None,
        prompt: Prompt | None = None,
    ) -> Output:
        """Run all layers over `tokens`, at most `max_seq_len` of them a row.

        With `draw` it is a training pass; without, the method's inference rule holds. `prompt` has
        what follows a prompt decided as in generation. Where the method puts an end-of-text token
        before the sequence, no hidden state of it is returned; learned positions are the tokens'.
        """
        t, bos = tokens.shape[1], has_bos(self.method)
        assert t <= self.spec.max_seq_len, f"{t} tokens exceed {self.spec.max_seq_len}"
        rope: Rope = None
        places = F.pad(tokens, (int(bos), 0), value=END_OF_TEXT_ID)
        x = F.embedding(places, self.embedding)  # B T D
        if self.spec.positions == "learned":
            x = x + F.pad(self.position[:t], (0, 0, int(bos), 0))
        else:
            end = places.shape[1]
            rope = to_compute(self.rope_cos[:end]), to_compute(self.rope_sin[:end])
        starts = None if self.spec.cross_document_attention else document_starts(places)
        context = Context(rope, places, draw, prompt=prompt, starts=starts)
        routings = []
        for layer in self.layers:
            x, routing = layer(x, context)
            routings.append(routing)
        return Output(norm(x[:, bos:], self.final_norm, self.spec), tuple(routings))

    def advance(self, tokens: Int[Tensor, "B T"], cache: Cache) -> Float[Tensor, "B T D"]:
        """Run one pass of generation and return the hidden states.

        A new cache takes the prompts, each row's first token at place 0 and whatever behind its
        last; a filled one takes one further token a row. The cache holds them afterwards.
        """
        bos, prompt = int(has_bos(self.method)), not cache.filled
        places = F.pad(tokens, (bos, 0), value=END_OF_TEXT_ID) if prompt else tokens
        at = cache.lengths[:, None]  # B 1
        if prompt:
            at = torch.arange(places.shape[1], device=tokens.device)  # T
        else:
            assert tokens.shape[1] == 1
        x, rope = F.embedding(places, self.embedding), None
        if self.spec.positions == "learned":
            own = self.position[(at - bos).clamp(min=0)]
            x = x + own.where(at[..., None] >= bos, 0.0)
        else:
            rope = to_compute(self.rope_cos[at]), to_compute(self.rope_sin[at])
        starts = None if self.spec.cross_document_attention else _go_on(places, cache)
        for layer, kept in zip(self.layers, cache.layers, strict=True):
            cached = Cached(kept, prompt, cache.lengths, cache.rule)
            x, _ = layer(x, Context(rope, places, cached=cached, starts=starts))
        cache.filled = True
        if not prompt:
            cache.lengths = cache.lengths + 1
        return norm(x[:, bos if prompt else 0 :], self.final_norm, self.spec)

    @property
    def lm_head_weight(self) -> Float[Tensor, "V D"]:
        """Return the output embedding, which is the input embedding when tied."""
        return self.embedding if self.spec.tie_embeddings else self.lm_head

    def logits(self, hidden: Float[Tensor, "B T D"]) -> Float[Tensor, "B T V"]:
        """Return the logits of `forward`'s hidden states."""
        return F.linear(to_compute(hidden), self.lm_head_weight)


def _go_on(places: Int[Tensor, "B T"], cache: Cache) -> Int[Tensor, "B T"]:
    """Return the first place that each token of this pass may see, and keep the last ones."""
    if cache.starts is None:
        starts = document_starts(places)
        cache.starts = starts.gather(1, cache.lengths[:, None] - 1)[:, 0]
        return starts
    opens = places[:, 0] == END_OF_TEXT_ID
    cache.starts = cache.lengths.where(opens, cache.starts)
    return cache.starts[:, None]


def initialise(model: Transformer, generator: torch.Generator) -> Transformer:
    """Fill a model with its method's random start: normal matrices, unit norms.

    Routers use the method's `router_init_std`, everything else the model's `init_std`; hash tables
    are made without token counts.
    """
    method = model.method
    router_std = 0.0 if isinstance(method, Unrouted) else method.router_init_std
    for name, parameter in model.named_parameters():
        if name.endswith("norm"):
            nn.init.ones_(parameter)
        else:
            std = router_std if name.endswith("router") else model.spec.init_std
            nn.init.normal_(parameter, std=std, generator=generator)
    for layer in model.layers:
        if isinstance(layer.ffn, FFNExperts) and isinstance(layer.ffn.router_spec, HashRouter):
            table = hash_table(layer.ffn.router_spec, model.num_experts, model.embedding)
            layer.ffn.hash.copy_(table)
    return model
