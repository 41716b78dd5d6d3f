"""Dense experts as comparisons: an arm against its own, and those of one arm against another's."""

from typing import Literal

from bam_lab.report.blocks import arm_cells
from bam_lab.report.contrasts import NotMeasured, OutOfScope
from bam_lab.report.evidence import Cell, Evidence
from bam_lab.report.leaves import Leaf
from bam_lab.report.stats import mean_of
from bam_lab.spec.branches import home_of


def at_home(evidence: Evidence, arm: str) -> list[Leaf]:
    """Compare an arm with each of its experts, in the expert's domain.

    Raises:
        NotMeasured: a score is missing.
        OutOfScope: the arm has no expert of a domain.
    """
    leaves = []
    for branch in _branches(evidence, arm):
        home = home_of(branch)
        label, place = f"{arm} against the {branch} expert, {home}", home
        cells = arm_cells(evidence, arm, home), expert_cells(evidence, branch, home)
        leaves.append(_leaf(label, place, *cells))
    return leaves


def better_experts(
    evidence: Evidence, text: Literal["own", "general"], first: str, second: str
) -> list[Leaf]:
    """Compare the experts of one arm with those of another, home by home.

    Raises:
        NotMeasured: a score is missing.
        OutOfScope: the two share their experts, or these are not of the same domains.
    """
    pairs = list(zip(_branches(evidence, first), _branches(evidence, second), strict=False))
    if [home_of(one) for one, _ in pairs] != [home_of(two) for _, two in pairs]:
        raise OutOfScope(f"{first} and {second} have experts of other domains")
    if all(one == two for one, two in pairs):
        raise OutOfScope(f"{first} and {second} have the same experts")
    leaves = []
    for one, two in pairs:
        home = home_of(one) if text == "own" else (evidence.general or evidence.domains[0])
        label = f"{one} expert against {two} expert, {home}"
        cells = expert_cells(evidence, one, home), expert_cells(evidence, two, home)
        leaves.append(_leaf(label, f"{home_of(one)} expert", *cells))
    return leaves


def expert_cells(evidence: Evidence, branch: str, domain: str) -> list[Cell]:
    """Return the cells of one dense expert on one domain."""
    return [c for c in evidence.cells if (c.role, c.name, c.domain) == ("expert", branch, domain)]


def _branches(evidence: Evidence, arm: str) -> list[str]:
    """Return the arm's branches that are experts of a domain."""
    names = evidence.arm(arm).branches or evidence.arm(arm).experts
    found = [name for name in dict.fromkeys(names) if home_of(name) in evidence.domains]
    found = [name for name in found if any(expert_cells(evidence, name, home_of(name)))]
    if not found:
        raise OutOfScope(f"{arm} has no expert of a domain")
    return found


def _leaf(label: str, place: str, mine: list[Cell], theirs: list[Cell]) -> Leaf:
    """Compare cells replicate by replicate; what all replicates share stands in each."""
    losses = {cell.replicate: cell.nll for cell in theirs}
    gaps = [
        cell.nll - other
        for cell in mine
        if cell.nll is not None
        and (other := losses.get(cell.replicate, losses.get(None))) is not None
    ]
    if not gaps:
        reasons = [cell.missing for cell in (*mine, *theirs) if cell.missing]
        raise NotMeasured(reasons[0] if reasons else f"{label}: no replicate has both scores")
    return Leaf(label, place, "better", mean_of(gaps))
