"""From cells to blocks: the (arm, replicate) tables that the statistics take, and their effects."""

import math
from collections.abc import Sequence

from bam_lab.report.evidence import Cell, Evidence
from bam_lab.report.stats import Blocks, Difference, block_difference
from bam_lab.spec.branches import home_of

AVERAGE = "average"
"""The column of the mean negative log-likelihood over domains (geometric mean of perplexities)."""


def arm_cells(evidence: Evidence, arm: str, domain: str) -> list[Cell]:
    """Return the cells of one arm on one domain, one a replicate."""
    return [c for c in evidence.cells if (c.role, c.name, c.domain) == ("arm", arm, domain)]


def arm_blocks(evidence: Evidence, domain: str) -> Blocks:
    """Return {(arm, replicate): nll} on a domain or on `AVERAGE`."""
    return _blocks(evidence, ("arm",), domain)


def dense_blocks(evidence: Evidence, domain: str) -> Blocks:
    """Return {(dense model, replicate): nll} of the seed model and the dense experts.

    A model that all replicates share stands in each of them: it is one run, and its value does not
    vary, but the experts beside it do.
    """
    return _blocks(evidence, ("seed_model", "expert"), domain)


def effect(evidence: Evidence, first: str, second: str, domain: str) -> Difference | None:
    """Return arm `first` minus arm `second` on a domain; None when there is nothing to compare."""
    return block_difference(arm_blocks(evidence, domain), first, second)


def diagonal(evidence: Evidence) -> dict[str, dict[str, Difference | None]]:
    """Return {domain: {other dense model: its expert minus that model, on that domain}}."""
    domains = [name for name in dense_experts(evidence) if home_of(name) == name]
    return {
        domain: {
            other: block_difference(dense_blocks(evidence, domain), domain, other)
            for other in ("seed_model", *domains)
            if other != domain
        }
        for domain in domains
    }


def dense_experts(evidence: Evidence) -> tuple[str, ...]:
    """Return the names of the branches of this run, whole domains in the recipe's order first."""
    domains = evidence.recipe["expert"]["domains"]
    found = dict.fromkeys(cell.name for cell in evidence.cells if cell.role == "expert")
    return tuple(sorted(found, key=lambda n: domains.index(n) if n in domains else len(domains)))


def runs_of(evidence: Evidence, arm: str, domains: Sequence[str]) -> tuple[str, ...]:
    """Return the store keys behind one arm's numbers on some domains."""
    keys = (run for d in domains for cell in arm_cells(evidence, arm, d) for run in cell.runs)
    return tuple(dict.fromkeys(keys))


def missing_reason(evidence: Evidence, arm: str, domains: Sequence[str]) -> str:
    """Return why an arm has no number there; empty when it has one."""
    cells = [cell for domain in domains for cell in arm_cells(evidence, arm, domain)]
    if not cells:
        return "not part of this run"
    return next((cell.missing for cell in cells if cell.missing), "")


def _blocks(evidence: Evidence, roles: tuple[str, ...], domain: str) -> Blocks:
    if domain != AVERAGE:
        return _one_domain(evidence, roles, domain)
    parts = [_one_domain(evidence, roles, name) for name in evidence.domains]
    whole = set(parts[0]).intersection(*parts[1:])
    return {key: math.fsum(part[key] for part in parts) / len(parts) for key in sorted(whole)}


def _one_domain(
    evidence: Evidence, roles: tuple[str, ...], domain: str
) -> dict[tuple[str, int], float]:
    cells = [c for c in evidence.cells if c.role in roles and c.domain == domain]
    own = sorted({c.replicate for c in cells if c.replicate is not None}) or [0]
    return {
        (cell.name, replicate): cell.nll
        for cell in cells
        if cell.nll is not None
        for replicate in ([cell.replicate] if cell.replicate is not None else own)
    }
