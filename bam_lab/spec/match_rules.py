"""What makes no sense in a match, or would have no effect there."""

from collections.abc import Iterator, Mapping, Sequence

from bam_lab.spec.ablation import AblationSpec, Knob, Match
from bam_lab.spec.experts import is_trained
from bam_lab.spec.knobs import lacks
from bam_lab.spec.laws import no_generation
from bam_lab.spec.messages import nearest
from bam_lab.spec.methods import BTMMethod, MethodSpec
from bam_lab.spec.reader import Document

SIZES = ("params-total", "params-active", "inference-flops", "decode-throughput")
"""Modes that keep the baseline's tokens and turn knobs of the arms."""
MEASURED = ("device-time", "decode-throughput")
"""Modes that need a `calibrate` stage."""
_WHERE = {"phase": ("flops", "device-time"), "across": ("flops",)}
"""Key of a match -> the modes in which it has an effect."""


def match_problems(
    document: Document,
    spec: AblationSpec,
    arms: Mapping[str, MethodSpec],
    bases: Mapping[str, str],
) -> Iterator[str]:
    """Check a match against itself and against the arms.

    Args:
        document: the file.
        spec: what it says.
        arms: every arm that is valid.
        bases: arm -> its name in the file.
    """
    match, written = spec.match, document.data.get("match") or {}
    for key, modes in _WHERE.items():
        if match.on not in modes and key in written:
            text = f"must not be given with `on: {match.on}`: it has no effect. Remove it."
            yield document.problem(("match", key), text)
    if match.across and "settings" not in document.data:
        text = "must not be given without settings: there is one baseline. Remove it."
        yield document.problem(("match", "across"), text)
    if match.unmatched and not match.unmatched.strip():
        text = "must say why arms may be ranked that are not matched, got blanks. Give the reason."
        yield document.problem(("match", "unmatched"), text)
    named = [bases.get(arm, arm) for arm in spec.arms]
    for base, knobs in match.by.items():
        loc = ("match", "by", base)
        if base not in named:
            text = f"must name an arm, got {base!r}. {nearest(base, named)}"
            yield document.problem(loc, text)
            continue
        mine = {arm: method for arm, method in arms.items() if bases.get(arm, arm) == base}
        for text in _turned(spec, mine, knobs):
            yield document.problem(loc, text)
    if match.on == "decode-throughput":
        for arm, method in arms.items():
            if why := _undecoded(method):
                yield document.problem(("arms", arm), f"{why} (match.on: decode-throughput)")


def _turned(
    spec: AblationSpec, arms: Mapping[str, MethodSpec], knobs: Sequence[Knob]
) -> Iterator[str]:
    """Say what is wrong with the knobs of the arms of one name."""
    match, known = spec.match, _known(spec.match)
    if not knobs or len(set(knobs)) < len(knobs):
        yield f"must name knobs, each once, got {', '.join(knobs) or 'none'}."
    if spec.baseline in arms and not match.across:
        yield "must not be the baseline, which the others are matched with. Remove it."
    size_of = (spec.arms.get(spec.baseline) or {}).get("size_of")
    if isinstance(size_of, dict) and size_of.get("arm") in arms:
        yield "must not be the arm that gives the baseline its size. Remove it."
    for knob in knobs:
        if knob not in known:
            usable = f"It turns {', '.join(known)}." if known else "Remove it."
            yield f"must not turn {knob} with `on: {match.on}`: it has no effect. {usable}"
            continue
        for arm, method in arms.items():
            if knob == "batch" and not is_trained(method):
                yield f"must be trained to have a batch, got method: {method.method}. Remove it."
            elif knob != "batch" and (why := lacks(method, knob)):
                yield f"must have {knob} to turn, but {why} (arm {arm!r}). Take another knob."


def _known(match: Match) -> tuple[Knob, ...]:
    """Return the knobs that have an effect on what is matched."""
    match match.on:
        case "flops":
            return ("batch",)
        case "params-total":
            return ("num_experts", "ffn_dim")
        case "params-active" | "inference-flops" | "decode-throughput":
            return ("num_experts", "top_k", "ffn_dim")
        case _:
            return ()


def _undecoded(method: MethodSpec) -> str:
    if isinstance(method, BTMMethod):
        return "must be one model to be timed, got method: btm. Take it out."
    return no_generation(method) or ""
