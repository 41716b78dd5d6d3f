"""How numbers are written, and the sentence on what a verdict is about."""

from collections.abc import Sequence

from bam_lab.report.evidence import Evidence
from bam_lab.report.standing import matched_thing

MINUS = "−"

FROM = {
    "mixture": "the mixture phase",
    "branch": "branches and mixture phase",
    "seed": "seed model, branches and mixture phase",
}


def scope(evidence: Evidence) -> str:
    """Return the scope of every verdict in this report."""
    arms = [arm.name for arm in evidence.arms if evidence.baseline_of(arm.name) == arm.name]
    budgets = [evidence.arm(arm).budget for arm in arms]
    digest = str(evidence.corpus.get("digest", ""))[:12]
    corpus = f"{evidence.sizes['corpus']} ({digest or 'not built yet'})"
    redone = FROM[evidence.ablation["replicates"]["from"]]
    count = evidence.replicates
    replicates = (
        "1 replicate" if count == 1 else f"{counted(evidence)} replicates, each redoing {redone}"
    )
    names = ", ".join(setting.name for setting in evidence.settings)
    settings = f"settings {names}; " if names else ""
    trial = " (a trial, too short to conclude from)" if evidence.sizes.get("trial") else ""
    return (
        f"scale {evidence.scale}{trial}; {settings}baseline {evidence.baseline} with "
        f"{_between([b['params']['total'] for b in budgets])} parameters "
        f"({_between([b['params']['active'] for b in budgets])} active) and "
        f"{_between([b['tokens'] for b in budgets])} mixture-phase tokens; equal "
        f"{matched_thing(evidence)}; corpus {corpus}; {replicates}"
    )


def _between(values: Sequence[float]) -> str:
    ends = list(dict.fromkeys(number(value) for value in (min(values), max(values))))
    return " to ".join(ends)


def counted(evidence: Evidence) -> str:
    """Return the number of replicates, saying so where some have not finished."""
    fewer = any(cell.role == "arm" and cell.nll is None for cell in evidence.cells)
    return f"{evidence.replicates} (fewer where noted)" if fewer else str(evidence.replicates)


def number(value: float) -> str:
    """Return a count with three significant digits and a suffix: 587M, 1.69M, 4.10M."""
    for factor, suffix in (
        (1e18, "E"),
        (1e15, "P"),
        (1e12, "T"),
        (1e9, "B"),
        (1e6, "M"),
        (1e3, "k"),
    ):
        if abs(value) >= factor:
            scaled = value / factor
            digits = 0 if scaled >= 99.95 else 1 if scaled >= 9.995 else 2
            return f"{scaled:.{digits}f}{suffix}"
    return f"{value:.0f}"


def signed(value: float, digits: int) -> str:
    """Return a number with its sign, a real minus, and no negative zero."""
    text = f"{abs(value):.{digits}f}"
    if float(text) == 0:
        return text
    return f"{MINUS if value < 0 else '+'}{text}"
