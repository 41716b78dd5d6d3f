"""How often a sequence decides, merges and runs an FFN, where these are not once a token.

Per sequence, so that a last segment that is not full and a token before the sequence count as what
they are. `executed` counts what our code runs beyond what the mathematics needs: the places that
fill up Lory's last segment, and its second merge of one decision under prefix routing.
"""

from dataclasses import dataclass

from bam_lab.spec.experts import has_bos
from bam_lab.spec.methods import (
    LoryMethod,
    MethodSpec,
    SegmentMoEMethod,
    SMEARMethod,
    SoftMoEMethod,
    TokenMergingMethod,
)


@dataclass(frozen=True)
class Work:
    """Count the FFN work of one sequence in one routed layer.

    Attributes:
        decisions: times that each router's weights are multiplied with a vector.
        merges: FFNs merged of all experts.
        places: vectors that go through an FFN, each through `LayerExperts.ffn_active`.
    """

    decisions: int
    merges: int
    places: int


def ffn_work(method: MethodSpec, num_experts: int, seq_len: int, executed: bool) -> Work:
    """Count the work of one sequence of `seq_len` tokens."""
    places = places_of(method, seq_len)
    match method:
        case LoryMethod(routing="prefix"):
            twice = executed and method.first_segment != "bos" and seq_len > method.segment_len
            return Work(1, 1 + twice, places)
        case LoryMethod():
            length = min(method.segment_len, seq_len)
            groups = -(-seq_len // length)
            filled = groups * length if executed else seq_len
            bos = places - seq_len
            return Work(groups + bos, groups + bos, filled + bos)
        case SegmentMoEMethod():
            return Work(-(-seq_len // method.segment_len) + places - seq_len, 0, places)
        case SMEARMethod():
            return Work(1, 1, places)
        case TokenMergingMethod():
            # Merged matrices are linear in the experts: what a merge costs, its product costs less.
            return Work(places, 0, places * num_experts)
        case SoftMoEMethod():
            # Logits, dispatch and combine have one size; a slot is a place of its expert.
            return Work(3 * places, 0, method.slots_per_expert)
        case _:
            return Work(places, 0, places)


def places_of(method: MethodSpec, seq_len: int) -> int:
    """Return the places of a sequence: its tokens, and one before them where the method has it."""
    return seq_len + has_bos(method)
