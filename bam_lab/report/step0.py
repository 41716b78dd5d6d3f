"""What was proved about the upcycled models before any training: perplexity and receipts."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bam_lab.report.evidence import Evidence, Receipt
from bam_lab.report.sections import perplexity_value
from bam_lab.report.table import Column, Row, Table, Value, hoist, nothing
from bam_lab.report.tables import arms_in_order


def step0_table(evidence: Evidence) -> Table:
    """Return every arm's perplexity right after upcycling, before any training."""
    rows = []
    for arm in arms_in_order(evidence):
        cells = [c for c in evidence.cells if (c.role, c.name) == ("step-0", arm)]
        if cells:
            values = tuple(perplexity_value(cells, domain) for domain in evidence.domains)
            rows.append(Row(arm, values, "baseline" if arm == evidence.baseline else ""))
    return Table(
        label="step-0",
        title="Perplexity at step 0",
        caption=(
            "Test perplexity right after upcycling, before the mixture phase. Top-k gates that are "
            "not renormalised shrink a layer's output here."
        ),
        corner="arm",
        columns=tuple(Column(domain) for domain in evidence.domains),
        rows=tuple(hoist(row) for row in rows),
    )


def receipts_table(evidence: Evidence) -> Table | None:
    """Return the step-0 proofs, the worst over replicates; None before any upcycling."""
    rows = []
    for arm in arms_in_order(evidence):
        own = [receipt for receipt in evidence.receipts if receipt.arm == arm]
        if own:
            rows.append(Row(arm, tuple(_receipt_values(own))))
    if not rows:
        return None
    return Table(
        label="receipts",
        title="Proofs at step 0",
        caption=(
            "Gate sum: mean over tokens of a router's gates, the factor on the layer's output if "
            "the experts were equal; in brackets what near-uniform routers give. Causality and "
            "batch invariance: the largest change of a logit that must not move when later tokens "
            "or other rows change. Routers: how many get a gradient from the language-model loss "
            "alone once experts differ." + _looking_ahead(evidence)
        ),
        corner="arm",
        columns=(
            Column("tensors with one origin"),
            Column("gate sum, FFN"),
            Column("gate sum, attention"),
            Column("causality"),
            Column("batch invariance"),
            Column("routers that learn"),
        ),
        rows=tuple(rows),
    )


def _looking_ahead(evidence: Evidence) -> str:
    """Explain the one leak that is a system's own (arXiv:2405.03133 App. A)."""
    arms = [a.name for a in evidence.arms if a.method.get("first_segment") == "own_mean"]
    if not arms:
        return ""
    return (
        f" Lory routes its first segment by that segment's own mean ({', '.join(arms)}): its "
        "tokens see later ones of the segment, in training and in every perplexity here."
    )


def _receipt_values(own: Sequence[Receipt]) -> Iterator[Value]:
    facts = [receipt.facts for receipt in own]
    runs = tuple(receipt.key for receipt in own)
    tensors = facts[0]["coverage"]["tensors"]
    yield Value(f"{tensors}", float(tensors), runs=runs)
    for part in ("ffn", "attention"):
        sums = [
            gate
            for fact in facts
            for name, gate in fact.get("gate_sum", {}).items()
            if name.endswith(part)
        ]
        if not sums:
            yield nothing("no such router")
            continue
        mean = math.fsum(gate["measured"] for gate in sums) / len(sums)
        yield Value(f"{mean:.3f} ({sums[0]['predicted']:.3g})", mean, runs=runs)
    for law in ("causality", "batch invariance"):
        tried = [found for fact in facts for found in _tried(fact, law)]
        worst = max(found["max_logit_change"] for found in tried)
        holds = all(found["holds"] for found in tried)
        moved = f"{worst:.1e}" if worst else "0"
        places = dict.fromkeys(place for found in tried for place in found.get("broken", ()))
        verdict = "holds" if holds else " ".join(("BROKEN", " and ".join(places))).strip()
        yield Value(f"{verdict} ({moved})", worst, runs=runs)
    learns = [g["learns"] for fact in facts for g in fact.get("router_gradients", {}).values()]
    text = f"{sum(learns)} of {len(learns)}"
    yield Value(text, float(sum(learns)), runs=runs) if learns else nothing("no router")


def _tried(facts: Mapping[str, Any], law: str) -> list[Mapping[str, Any]]:
    """Return what was found about a law, under each rule and in every part of it."""
    if "laws" not in facts:  # a result from before the two rules were told apart
        return [facts[law.replace(" ", "_")]]
    rules = facts["laws"].values()
    return [found for rule in rules for name, found in rule.items() if name.startswith(law)]
