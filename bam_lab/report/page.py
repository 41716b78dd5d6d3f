"""The sentences of the page that depend on what was run."""

from collections.abc import Sequence
from typing import Any

from bam_lab.report.budgets import budget_lines
from bam_lab.report.evidence import Evidence, StageFact
from bam_lab.report.scope import FROM, scope
from bam_lab.report.standing import matching
from bam_lab.report.text import stands_in
from bam_lab.spec.published import Tables


def page_parts(evidence: Evidence, published: Tables) -> dict[str, Any]:
    """Return the page's sentences and small facts by name."""
    return {
        "scope_text": scope(evidence),
        "state_text": _state(evidence.stages),
        "matching_text": matching(evidence, bool(published)),
        "stands_in_text": stands_in(evidence),
        "replicates_text": _replicates(evidence),
        "failures": [(s.label, s.failure) for s in evidence.stages if s.failure],
        "receipts": [
            (f"{r.arm}{'' if r.replicate is None else f', replicate {r.replicate}'}", flat(r.facts))
            for r in evidence.receipts
        ],
        "provenance": [
            (entry, len(entry.stages), _commit(entry.git)) for entry in evidence.provenance
        ],
        "budget_lines": budget_lines(evidence),
    }


def flat(facts: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Return nested facts as (dotted name, value) lines."""
    if isinstance(facts, dict):
        return [line for key in facts for line in flat(facts[key], f"{prefix}{key}.")]
    name = prefix.rstrip(".")
    if isinstance(facts, list) and any(isinstance(item, dict | list) for item in facts):
        return [line for i, item in enumerate(facts) for line in flat(item, f"{prefix}{i}.")]
    if isinstance(facts, list):
        return [(name, ", ".join(_shown(item) for item in facts))]
    return [(name, _shown(facts))]


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _state(every: Sequence[StageFact]) -> str:
    stages = list({stage.key: stage for stage in every}.values())  # some have a row for two arms
    done = sum(stage.done for stage in stages)
    failed = sum(bool(stage.failure) for stage in stages)
    if done == len(stages):
        return ""
    text = f"{done} of {len(stages)} stages are done"
    return text + (f", {failed} failed" if failed else "") + ": cells may be missing."


def _replicates(evidence: Evidence) -> str:
    redone = FROM[evidence.ablation["replicates"]["from"]]
    if evidence.replicates == 1:
        return "One replicate: direction and size only. Nothing is judged, nothing is ranked."
    return f"{evidence.replicates} replicates; each redoes {redone}."


def _commit(git: dict[str, str]) -> str:
    if not git:
        return "installed package"
    dirty = f" with uncommitted changes {git['dirty']}" if "dirty" in git else ""
    return f"commit {git['commit'][:12]}{dirty}"
