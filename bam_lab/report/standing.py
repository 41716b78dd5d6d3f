"""Whether an arm may be ranked: what the match promised, and what the ledgers say was spent."""

import math
from dataclasses import dataclass
from typing import Any

from bam_lab.cost.match import TOLERANCE
from bam_lab.cost.match.words import equal_things, quantity_name, solved
from bam_lab.report.costs import method_of
from bam_lab.report.evidence import Evidence
from bam_lab.spec.ablation import Match
from bam_lab.spec.laws import broken_laws
from bam_lab.spec.reader import tuples
from bam_lab.spec.recipe import SEED_MODEL

_BTX = "arXiv:2403.07816"
_COMPUTE = {
    "arXiv:2408.08274": "TPU core-days of the mixture phase",
    _BTX: "GPU-days of all phases",
}
"""Paper -> what its compute matching made equal."""


@dataclass(frozen=True)
class MatchCheck:
    """Hold one arm's match.

    Attributes:
        planned: the matched quantity over the baseline's, from the solver.
        spent: the mixture phase's tokens, model training FLOPs or device time over the baseline's,
            from the ledgers; None before both have run, or where the baseline is another setting's.
        matched: whether `planned` is within tolerance, and what was spent is what was planned.
    """

    planned: float
    spent: float | None
    matched: bool


def match_check(evidence: Evidence, arm: str) -> MatchCheck:
    """Compare what an arm was given, and has spent, with the baseline."""
    budget, match = evidence.arm(arm).budget, _match(evidence)
    planned = float(budget["match_ratio"])
    kind = {"flops": "training_flops", "device-time": "device_seconds"}.get(match.on, "tokens")
    mine, theirs = (_spent(evidence, name, kind) for name in (arm, evidence.baseline_of(arm)))
    spent = mine / theirs if mine and theirs and not match.across else None
    as_planned = True
    if (trained := _spent(evidence, arm, "tokens")) is not None:
        as_planned = abs(trained / budget["tokens"] - 1) <= TOLERANCE
    return MatchCheck(planned, spent, bool(budget["matched"]) and as_planned)


def unranked(evidence: Evidence, arm: str) -> str:
    """Return why an arm is shown but not ranked; empty when it is ranked."""
    if why := broken_laws(method_of(evidence, arm), "inference").get("causality"):
        return f"its held-out losses see later tokens ({why})"
    check = match_check(evidence, arm)
    if check.matched or evidence.ablation["match"].get("unmatched"):
        return ""
    thing = quantity_name(_match(evidence))
    return f"outside the match tolerance: {check.planned:.4f} of the baseline's {thing}"


def looks_ahead(evidence: Evidence, arm: str) -> str:
    """Return what a reader must know of a ranked arm that sees later tokens; empty for none."""
    method, facts = method_of(evidence, arm), []
    if why := broken_laws(method, "training").get("causality"):
        facts.append(f"not causal in training ({why}), scored by another rule")
    if why := broken_laws(method, "inference").get("causality inside the first segment"):
        facts.append(f"tokens of the first segment see later ones of it, when scored too ({why})")
    return f"{arm}: {'; '.join(facts)}." if facts else ""


def matched_thing(evidence: Evidence) -> str:
    """Name all that is equal between arms."""
    return equal_things(_match(evidence))


def matching(evidence: Evidence, printed: bool) -> str:
    """Return the sentence on what is equal, and how that differs from the paper's where printed."""
    match, thing = _match(evidence), matched_thing(evidence)
    more = f" {solved(match)}" if match.by else ""
    theirs = _COMPUTE.get(evidence.ablation["source"]["paper"], "")
    by_compute = match.on in ("flops", "device-time")
    if (
        not printed
        or match.on in ("inference-flops", "decode-throughput")
        or (by_compute and not theirs)
    ):
        return f"Arms are equal in {thing}.{more}"
    if match.on == "flops":
        return (
            f"The paper matched {theirs}; we match {thing}, which do not depend on the "
            f"machine.{more}"
        )
    if match.on == "device-time":
        return (
            f"The paper matched {theirs}; we match {thing}, on our machine: seconds a step, "
            "measured once before training, times steps."
        )
    if match.on == "tokens":
        return (
            f"The paper's data matching: arms are equal in {thing}, in its order.{_less(evidence)}"
        )
    return f"The paper's parameter matching: arms are equal in {thing}.{more}"


def _less(evidence: Evidence) -> str:
    """Say what of BTX's data matching is not done here: there the branches' text counts too."""
    reads = {bool(set(arm.branches) - {SEED_MODEL}) for arm in evidence.arms}
    if evidence.ablation["source"]["paper"] != _BTX or len(reads) < 2:
        return ""
    return " The paper's arms without branches read the branches' text before it; ours do not."


def _match(evidence: Evidence) -> Match:
    return Match.model_validate(tuples(evidence.ablation["match"]))


def general_of(evidence: Evidence) -> tuple[str, dict[str, Any]]:
    """Return the general domain and its record in the corpus; an empty one where there is none."""
    name = evidence.general or evidence.domains[0]  # results from before the field was written
    return name, dict(evidence.corpus.get("domains", {}).get(name, {}))


def stand_in(evidence: Evidence) -> str:
    """Return what stands in for the papers' text where arms differ in it; else an empty text.

    Then a verdict is about the stand-in.
    """
    recipe = evidence.recipe["expert"]["general_share"]
    read = {
        (arm.data.get("general_share", recipe), arm.data.get("general_repeats"))
        for arm in evidence.arms
    }
    name, record = general_of(evidence)
    if len(read) < 2 or not record.get("stands_in_for"):
        return ""
    return f"“{name}” ({record['title']}), a stand-in for {record['stands_in_for']}"


def _spent(evidence: Evidence, arm: str, kind: str) -> float | None:
    """Return the mean over the replicates of which every part is trained; None without one."""
    replicates: dict[int | None, list[float | None]] = {}
    for stage in evidence.stages:
        if stage.name == "mixture" and stage.arm == arm:
            part = float(stage.ledger[kind]) if stage.ledger else None
            replicates.setdefault(stage.replicate, []).append(part)
    sums = [math.fsum(p for p in parts if p) for parts in replicates.values() if None not in parts]
    return math.fsum(sums) / len(sums) if sums else None
