"""Branch-Train-Merge: whole dense models whose next-token distributions are mixed.

p(x | text) = sum_i p(i | text) p_i(x | text), where p(i | text) is the softmax over experts of
cosine(tf-idf of the text so far, mean tf-idf vector of expert i's training text) / temperature, the
`top_k` largest renormalised (arXiv:2208.03306, arXiv:2303.14177 §3). The text of position t is its
inputs up to and with t, so the mixture is causal; where attention does not cross documents, those
of its own document. Nothing here is trained.

- The posterior is incremental. With counts c, a token v adds idf_v * centroid_v to each dot product
  and idf_v^2 (2 c_v + 1) to the squared norm: two running sums, and no vector of the vocabulary.
- Every model runs on every token: one that is chosen later needs its keys and values of all text
  before. Its LM head runs only where it is among the `top_k`.

Shapes: B batch, T tokens, N experts, V vocab, D dim.
"""

from collections.abc import Iterator, Mapping, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from bam_lab.model.context import document_starts
from bam_lab.model.losses import token_nats
from bam_lab.model.transformer import Transformer
from bam_lab.spec.methods import BTMMethod, DenseMethod
from bam_lab.spec.model import END_OF_TEXT_ID, ModelSpec

DENSE = DenseMethod(method="dense")


class Ensemble(nn.Module):
    """Hold N dense models and what their posterior needs.

    Args:
        spec: the shape of each.
        method: how many are mixed, and how sharply.
        num_experts: N.
    """

    idf: Float[Tensor, " V"]
    centroids: Float[Tensor, "N V"]

    def __init__(self, spec: ModelSpec, method: BTMMethod, num_experts: int):
        """Build the models, their weights and the statistics unfilled."""
        super().__init__()
        assert method.top_k <= num_experts
        self.spec, self.method, self.num_experts = spec, method, num_experts
        self.experts = nn.ModuleList(Transformer(spec, DENSE, 1) for _ in range(num_experts))
        self.register_buffer("idf", torch.empty(spec.vocab_size))
        self.register_buffer("centroids", torch.empty(num_experts, spec.vocab_size))

    def posterior(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T N"]:
        """Return the weight of each expert after each token; `top_k` of them are above 0."""
        return _weights(self._cosines(tokens), self.method)

    def log_probs(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """Return the log-probabilities of the token after each of `tokens`, for generation."""
        mixed = tokens.new_full(
            (*tokens.shape, self.spec.vocab_size), -torch.inf, dtype=torch.float
        )
        for rows, log_weight, model, hidden in self._chosen(tokens):
            logits = F.linear(hidden, model.lm_head_weight).float()
            mixed[rows] = torch.logaddexp(mixed[rows], logits.log_softmax(-1) + log_weight[:, None])
        return mixed

    def mix(
        self, hidden: Sequence[Float[Tensor, "B D"]], posterior: Float[Tensor, "B N"]
    ) -> Float[Tensor, "B V"]:
        """Return the log-probabilities of the next token from every model's last hidden state."""
        mixed = posterior.new_full((len(posterior), self.spec.vocab_size), -torch.inf)
        for model, states, weight in zip(self.experts, hidden, posterior.T, strict=True):
            assert isinstance(model, Transformer)
            rows = weight > 0
            if rows.any():
                logits = F.linear(states[rows], model.lm_head_weight).float()
                own = logits.log_softmax(-1) + weight[rows].log()[:, None]
                mixed[rows] = torch.logaddexp(mixed[rows], own)
        return mixed

    @torch.no_grad()
    def token_nats(
        self, tokens: Int[Tensor, "B T"], targets: Int[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]:
        """Return each target's negative log-likelihood under the mixture, in nats."""
        mixed = tokens.new_full(tokens.shape, -torch.inf, dtype=torch.float)
        for rows, log_weight, model, hidden in self._chosen(tokens):
            nats = token_nats(hidden, model.lm_head_weight, targets[rows])
            mixed[rows] = torch.logaddexp(mixed[rows], log_weight - nats)
        return -mixed

    def _chosen(self, tokens: Tensor) -> Iterator[tuple[Tensor, Tensor, Transformer, Tensor]]:
        """Yield each expert with the places it is chosen at, its log weights and states there."""
        posterior = self.posterior(tokens)
        for i, model in enumerate(self.experts):
            assert isinstance(model, Transformer)
            rows = posterior[..., i] > 0
            hidden = model(tokens).hidden
            if rows.any():
                yield rows, posterior[..., i][rows].log(), model, hidden[rows]

    def _cosines(self, tokens: Tensor) -> Tensor:
        # float64: the sums are long, and a cosine is divided by a small temperature.
        idf, centroids = self.idf.double(), self.centroids.double()
        weight = idf[tokens]  # B T
        same = tokens[:, :, None] == tokens[:, None, :]  # B T T
        starts = _starts(self.spec, tokens)
        if starts is not None:
            same &= starts[:, :, None] == starts[:, None, :]
        before = same.tril(-1).sum(-1)  # how often each token stood before
        dots = _running(weight[..., None] * centroids.T[tokens], starts)  # B T N
        squares = (weight.square() * (2 * before + 1)).unsqueeze(-1)
        norms = _running(squares, starts).squeeze(-1).sqrt()  # B T
        cosines: Tensor = dots / (norms[..., None] * centroids.norm(dim=1))
        return cosines


def assemble(
    spec: ModelSpec,
    method: BTMMethod,
    states: Sequence[Mapping[str, Tensor]],
    idf: Float[Tensor, " V"],
    centroids: Float[Tensor, "N V"],
) -> Ensemble:
    """Return the ensemble of dense models given by their states (rest: `data/tokens/tfidf.py`)."""
    model = Ensemble(spec, method, len(states))
    for place, state in zip(model.experts, states, strict=True):
        place.load_state_dict(state)
    model.idf.copy_(idf)
    model.centroids.copy_(centroids)
    return model


def posterior_reference(model: Ensemble, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T N"]:
    """Return the posterior from whole tf-idf vectors, one position after the other: the oracle."""
    rows = []
    for t in range(tokens.shape[1]):
        text = F.one_hot(tokens[:, : t + 1], model.spec.vocab_size)  # B t+1 V
        if not model.spec.cross_document_attention:
            for row, own in zip(tokens, text, strict=True):
                ends = (row[: t + 1] == END_OF_TEXT_ID).nonzero()
                own[: int(ends.max()) if len(ends) else 0] = 0
        counts = text.sum(1)  # B V
        vectors = counts.double() * model.idf.double()
        centroids = model.centroids.double()
        rows.append(F.cosine_similarity(vectors[:, None], centroids[None], dim=-1, eps=0.0))
    return _weights(torch.stack(rows, 1), model.method)


def mixed_reference(model: Ensemble, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
    """Return the mixture's log-probabilities from every expert's whole distribution: the oracle."""
    experts = [e for e in model.experts if isinstance(e, Transformer)]
    each = torch.stack([e.logits(e(tokens).hidden).float().softmax(-1) for e in experts], -1)
    return (each * posterior_reference(model, tokens)[:, :, None]).sum(-1).log()


def _starts(spec: ModelSpec, tokens: Tensor) -> Tensor | None:
    return None if spec.cross_document_attention else document_starts(tokens)


def _running(x: Float[Tensor, "B T N"], starts: Int[Tensor, "B T"] | None) -> Tensor:
    """Return the sums up to each place, from its document's start on."""
    sums = x.cumsum(1)
    if starts is None:
        return sums
    before = F.pad(sums, (0, 0, 1, 0))[:, :-1]  # those of the places before each
    return sums - before.gather(1, starts[..., None].expand_as(x))


def _weights(cosines: Tensor, method: BTMMethod) -> Tensor:
    """Return the softmax over the `top_k` nearest experts, 0 elsewhere, in float32."""
    kept, chosen = cosines.topk(method.top_k, dim=-1)
    gates = (kept / method.temperature).softmax(-1)
    return torch.zeros_like(cosines).scatter(-1, chosen, gates).float()
