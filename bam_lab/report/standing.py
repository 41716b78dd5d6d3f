"""Whether an arm may be ranked: what the match promised, and what the ledgers say was spent."""

import math
from dataclasses import dataclass
from typing import Any

from bam_lab.cost.match import TOLERANCE
from bam_lab.report.costs import method_of
from bam_lab.report.evidence import Evidence
from bam_lab.spec.laws import broken_laws


@dataclass(frozen=True)
class MatchCheck:
    """Hold one arm's match.

    Attributes:
        planned: the matched quantity over the baseline's, from the solver.
        spent: mixture-phase tokens or model training FLOPs over the baseline's, from the ledgers;
            None before both have run, or where the match counts more than the mixture phase.
        matched: whether `planned` is within tolerance, and what was spent is what was planned.
    """

    planned: float
    spent: float | None
    matched: bool


def match_check(evidence: Evidence, arm: str) -> MatchCheck:
    """Compare what an arm was given, and has spent, with the baseline."""
    budget = evidence.arm(arm).budget
    planned = float(budget["match_ratio"])
    kind = "tokens" if evidence.match_on == "tokens" else "training_flops"
    mine, theirs = (_spent(evidence, name, kind) for name in (arm, evidence.baseline_of(arm)))
    spent = mine / theirs if mine and theirs else None
    as_planned = True
    if mine is not None:
        as_planned = abs(mine / budget[kind] - 1) <= TOLERANCE
    return MatchCheck(planned, spent, bool(budget["matched"]) and as_planned)


def unranked(evidence: Evidence, arm: str) -> str:
    """Return why an arm is shown but not ranked; empty when it is ranked."""
    if why := broken_laws(method_of(evidence, arm), "inference").get("causality"):
        return f"its held-out losses see later tokens ({why})"
    check = match_check(evidence, arm)
    if check.matched or evidence.ablation["match"].get("unmatched"):
        return ""
    thing = matched_thing(evidence)
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
    """Name the matched quantity."""
    if evidence.match_on == "tokens":
        return "mixture-phase tokens"
    phase = evidence.ablation["match"].get("phase", "mixture")
    return f"model training FLOPs of {'the mixture phase' if phase == 'mixture' else 'all phases'}"


def matching(evidence: Evidence, printed: bool) -> str:
    """Return the sentence on what is equal, and how that differs from the paper's where printed."""
    if not printed:
        return f"Arms are equal in {matched_thing(evidence)}."
    if evidence.match_on == "flops":
        return (
            "The paper matched TPU core-days of the mixture phase; we match "
            f"{matched_thing(evidence)}, which do not depend on the machine."
        )
    return f"The paper's data matching: arms are equal in {matched_thing(evidence)}, in its order."


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
