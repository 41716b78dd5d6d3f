"""What a match makes equal, in words for the plan and the report."""

from bam_lab.spec.ablation import Match
from bam_lab.spec.match_rules import SIZES

TOKENS = "mixture-phase tokens"
_NAMES = {
    "tokens": TOKENS,
    "params-total": "total parameters",
    "params-active": "parameters that a token uses",
    "inference-flops": "model FLOPs of a token at inference",
    "decode-throughput": "measured tokens a second of decoding",
}

_NAMES_BY_PHASE = {"flops": "model training FLOPs", "device-time": "measured device time"}


def quantity_name(match: Match) -> str:
    """Name the quantity whose ratio to the baseline's is shown."""
    if match.on not in _NAMES_BY_PHASE:
        return _NAMES[match.on]
    where = "the mixture phase" if match.phase == "mixture" else "all phases"
    across = ", over all settings" if match.across else ""
    return f"{_NAMES_BY_PHASE[match.on]} of {where}{across}"


def equal_things(match: Match) -> str:
    """Name all that is equal between arms: sizes go with the same tokens."""
    name = quantity_name(match)
    return f"{name} and in {TOKENS}" if match.on in SIZES else name


def solved(match: Match) -> str:
    """Say what the match chooses besides steps; empty where it is nothing."""
    if not match.by:
        return ""
    parts = (f"{' and '.join(knobs)} of {arm}" for arm, knobs in match.by.items())
    return f"Chosen for that: {', '.join(parts)}."
