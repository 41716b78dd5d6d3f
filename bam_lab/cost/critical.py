"""The longest way through a decoding step when experts stand on devices of their own.

Experts are spread over a group of devices, evenly (arXiv:2101.03961 §2.2, as BAM does,
arXiv:2408.08274 §4); whatever is no expert is on every device, which takes its share of the rows.
A step is as slow as the longest chain of work that has to wait for each other:

- of a layer's experts those of one device, the others work at the same time. Routing is taken as
  even, shares of rows are rounded up;
- tokens go to experts and come back: two exchanges for each kind of experts. In a parallel block
  attention and FFN experts read the same vectors, so both kinds' travel together; in a serial one
  they cannot;
- a device that holds experts of both kinds does the work of both, whatever the block. Where the
  kinds are `apart`, on devices of their own, a parallel block does them at the same time, so the
  longer counts; a serial one still does them one after the other;
- keys and values that all attention experts share are computed where the experts are, each device
  for all rows: without that their cache would have to travel;
- merged FFNs are cut along their hidden width (arXiv:2405.03133 §6), every device for all rows;
- of Branch-Train-Merge whole models stand side by side, never apart, and meet once, at the end.

FLOPs and weights each take their own longest way. Devices' speeds and links do not enter.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from bam_lab.cost.communication import ACTIVATION_BYTES
from bam_lab.cost.layer import LayerExperts, layers_of
from bam_lab.cost.params import expert_params, ffn_params, key_params, query_params
from bam_lab.cost.segments import places_of
from bam_lab.errors import SpecError
from bam_lab.spec.experts import shape_of
from bam_lab.spec.laws import no_generation
from bam_lab.spec.methods import (
    BAMMethod,
    BTMMethod,
    LoryMethod,
    MethodSpec,
    SegmentMoEMethod,
    TokenMergingMethod,
)
from bam_lab.spec.model import ModelSpec


@dataclass(frozen=True)
class CriticalPath:
    """Hold the longest way of one decoding step.

    Attributes:
        flops: on it, LM head included.
        weights: numbers that are read on it.
        exchanges: times that devices wait for vectors of each other.
        sent_bytes: by all devices together.
    """

    flops: int
    weights: int
    exchanges: int
    sent_bytes: int


@dataclass(frozen=True)
class _Branch:
    """Hold what one device does for one half of a layer."""

    flops: int
    weights: int
    exchanges: int


def critical_path(
    model: ModelSpec,
    method: MethodSpec,
    num_experts: int,
    context: int,
    group: int,
    rows: int = 1,
    apart: bool = False,
) -> CriticalPath:
    """Return the longest way of a step that adds a token to each of `rows` rows.

    Args:
        model: the dense models' shape.
        method: dense or which mixture.
        num_experts: its experts.
        context: tokens of a row, the one that is read included.
        group: devices, a divisor of the experts; 1 is no parallelism. Any number of a dense model,
            whose rows alone are shared out.
        rows: of all devices together.
        apart: whether attention and FFN are on a group each, twice as many devices.

    Raises:
        SpecError: the method cannot generate, or `group` does not divide the experts.
    """
    if reason := no_generation(method):
        raise SpecError(reason)
    if group < 1 or (num_experts > 1 and num_experts % group):
        raise SpecError(
            f"group must divide the {num_experts} experts, got {group}. Take a divisor."
        )
    own = shape_of(method, model)
    places, share = places_of(method, context), ceil(rows / group)
    flops = weights = exchanges = 0
    sent = Fraction(0)
    for experts in layers_of(method, num_experts, own.num_layers):
        attention = _attention(own, experts, places, group, rows)
        ffn = _ffn(own, method, experts, group, rows)
        halves = [
            _routed(half, routers * own.dim * num_experts, share)
            for half, routers in zip((attention, ffn), _routers(method, experts), strict=True)
        ]
        parallel = own.block == "parallel" and not isinstance(method, BTMMethod)
        work = max if parallel and apart else sum
        flops += work(half.flops for half in halves)
        weights += work(half.weights for half in halves)
        exchanges += (max if parallel else sum)(half.exchanges for half in halves)
        sent += _sent(method, experts, group)
    if isinstance(method, BTMMethod):
        return _ensemble(own, num_experts, group, rows, flops, weights)
    head = own.dim * own.vocab_size
    numbers = sent * rows * own.dim * Fraction(group - 1, group)
    return CriticalPath(
        flops=flops + 2 * head * share,
        weights=weights + head,
        exchanges=exchanges if group > 1 else 0,
        sent_bytes=round(ACTIVATION_BYTES * numbers),
    )


def _attention(
    own: ModelSpec, experts: LayerExperts, places: int, group: int, rows: int
) -> _Branch:
    query = query_params(own) + 2 * own.num_heads * own.head_dim * places
    if experts.query == 1:
        share = ceil(rows / group)
        numbers = query_params(own) + key_params(own)
        return _Branch(2 * share * (query + key_params(own)), numbers, 0)
    queries = ceil(Fraction(rows * experts.query_active, group))
    held = experts.query // group
    keys = held if experts.key > 1 else 1
    return _Branch(
        flops=2 * (queries * query + rows * keys * key_params(own)),
        weights=min(held, queries) * query_params(own) + keys * key_params(own),
        exchanges=2,
    )


def _ffn(
    own: ModelSpec, method: MethodSpec, experts: LayerExperts, group: int, rows: int
) -> _Branch:
    one, share = expert_params(own, experts), ceil(rows / group)
    shared = experts.shared * ffn_params(own)
    if experts.ffn == 1:
        return _Branch(2 * share * one, one, 0)
    match method:
        case LoryMethod():
            cut = rows * -(-one // group)
            return _Branch(2 * cut, cut, 2)
        case TokenMergingMethod():
            cut = experts.ffn * -(-one // group)
            return _Branch(2 * rows * cut, cut, 2)
        case _:
            taken = ceil(Fraction(rows) * experts.ffn_active / group)
            held = experts.ffn // group
            return _Branch(
                flops=2 * (taken * one + share * shared),
                weights=min(held, taken) * one + shared,
                exchanges=2,
            )


def _ensemble(
    own: ModelSpec, num_experts: int, group: int, rows: int, flops: int, weights: int
) -> CriticalPath:
    """Add the LM heads of a device's models, and one meeting at the end."""
    held, head = num_experts // group, own.dim * own.vocab_size
    logits = ACTIVATION_BYTES * rows * own.vocab_size * num_experts
    return CriticalPath(
        flops=flops + 2 * held * rows * head,
        weights=weights + held * head,
        exchanges=int(group > 1),
        sent_bytes=round(logits * Fraction(group - 1, group)),
    )


def _sent(method: MethodSpec, experts: LayerExperts, group: int) -> Fraction:
    """Return how often a token's vector travels in one layer, own device included."""
    if group == 1 or isinstance(method, BTMMethod):
        return Fraction(0)
    there_and_back = Fraction(0)
    if experts.ffn > 1:
        merged = isinstance(method, LoryMethod | TokenMergingMethod)
        there_and_back += 2 * (group if merged else Fraction(experts.ffn_active))
    if experts.query > 1:
        there_and_back += experts.query + experts.query_active
    return there_and_back


def _routers(method: MethodSpec, experts: LayerExperts) -> tuple[int, int]:
    """Return the routers that a decoded token asks before attention and before the FFN.

    None where the prompt has decided for a whole segment.
    """
    if isinstance(method, LoryMethod | SegmentMoEMethod):
        return 0, 0
    attention = int(isinstance(method, BAMMethod))
    return attention, experts.routers - attention


def _routed(half: _Branch, router: int, share: int) -> _Branch:
    """Add the router of a half, `router` numbers that `share` rows are multiplied with."""
    return _Branch(half.flops + 2 * share * router, half.weights + router, half.exchanges)
