"""What was proved about the upcycled models before any training: perplexity and receipts."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bam_lab.record.proofs import verdicts
from bam_lab.report.evidence import Evidence, Receipt
from bam_lab.report.sections import perplexity_value
from bam_lab.report.settings import dense_suffixes
from bam_lab.report.table import Column, Row, Table, Value, hoist, nothing
from bam_lab.report.tables import arms_in_order, mark_of

PARTS = ("ffn", "attention")


def step0_table(evidence: Evidence) -> Table:
    """Return every arm's perplexity right after upcycling, before any training."""
    rows = []
    for arm in arms_in_order(evidence):
        cells = [c for c in evidence.cells if (c.role, c.name) == ("step-0", arm)]
        if cells:
            values = tuple(perplexity_value(cells, domain) for domain in evidence.domains)
            rows.append(Row(arm, values, mark_of(evidence, arm)))
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
            "or other rows change; declared breaks are a method's own. Routers: how many get a "
            "gradient from the language-model loss alone once experts differ. Other proofs: "
            "identities (copies, permutation, one expert), what each tensor is made of, "
            "gradients, and cost against what was built and traced." + _looking_ahead(evidence)
        ),
        corner="arm",
        columns=(
            Column("tensors with one origin"),
            Column("gate sum, FFN"),
            Column("gate sum, attention"),
            Column("causality"),
            Column("batch invariance"),
            Column("routers that learn"),
            Column("other proofs"),
        ),
        rows=tuple(rows),
    )


def routing_at_step0_table(evidence: Evidence) -> Table | None:
    """Return what routers do before any training; None where no receipt tells."""
    rows = []
    for arm in arms_in_order(evidence):
        own = [r for r in evidence.receipts if r.arm == arm and r.facts.get("routing")]
        if own:
            rows.append(Row(arm, tuple(v for part in PARTS for v in _routing_values(own, part))))
    if not rows:
        return None
    names = ("entropy", "load", "dropped", "router gradient")
    return Table(
        label="routing-step-0",
        title="Routing at step 0",
        caption=(
            "In a training pass over held-out text, means over layers and replicates. Entropy of a "
            "router's softmax, in nats. Load: the smallest and the largest share of tokens that an "
            "expert gets. Dropped: tokens that no expert takes. Router gradient: its norm, from "
            "the language-model loss alone."
        ),
        corner="arm",
        columns=tuple(Column(name, group) for group in ("FFN", "attention") for name in names),
        rows=tuple(rows),
    )


def batch_loss_table(evidence: Evidence) -> Table | None:
    """Return the loss of every upcycled model and of the dense ones it was made of, on one batch.

    None before any upcycling.
    """
    losses: dict[str, dict[str, list[float]]] = {}
    runs: dict[str, list[str]] = {}
    suffixes = dense_suffixes(evidence)
    for arm in arms_in_order(evidence):
        for receipt in (r for r in evidence.receipts if r.arm == arm):
            for domain, nats in receipt.facts.get("step0_nats", {}).items():
                for name, loss in nats.items():
                    dense = f"dense: {name}{suffixes[evidence.arm(arm).setting]}"
                    head = arm if name == "mixture" else dense
                    losses.setdefault(head, {}).setdefault(domain, []).append(loss)
                    runs.setdefault(head, []).append(receipt.key)
    if not losses:
        return None
    rows = [
        Row(
            head,
            tuple(
                Value(
                    f"{_mean(found[domain]):.3f}",
                    _mean(found[domain]),
                    runs=tuple(dict.fromkeys(runs[head])),
                )
                if domain in found
                else nothing("not read")
                for domain in evidence.domains
            ),
        )
        for head, found in sorted(losses.items(), key=lambda row: row[0].startswith("dense: "))
    ]
    return Table(
        label="batch-loss",
        title="Loss at step 0, on one batch",
        caption=(
            "Language-model loss, nats a token, of each upcycled model and of the dense models it "
            "was made of, on the same few held-out windows; means over replicates."
        ),
        corner="model",
        columns=tuple(Column(domain) for domain in evidence.domains),
        rows=tuple(rows),
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _routing_values(own: Sequence[Receipt], part: str) -> Iterator[Value]:
    runs = tuple(receipt.key for receipt in own)
    found = [
        routing
        for receipt in own
        for name, routing in receipt.facts["routing"].items()
        if name.endswith(part)
    ]
    if not found:
        yield from [nothing("no such router")] * 4
        return
    entropy, dropped = (_mean([r[key] for r in found]) for key in ("entropy", "dropped"))
    loads = [share for routing in found for share in routing["load"]]
    yield Value(f"{entropy:.3f}", entropy, runs=runs)
    yield Value(f"{min(loads):.0%} to {max(loads):.0%}", max(loads), runs=runs)
    yield Value(f"{dropped:.1%}" if dropped else "0", dropped, runs=runs)
    norms = [
        gradient["norm"]
        for receipt in own
        for name, gradient in receipt.facts["router_gradients"].items()
        if name.endswith(f"{part}.router")
    ]
    norm = _mean(norms) if norms else 0.0
    yield Value(f"{norm:.2g}", norm, runs=runs) if norms else nothing("no router to train")


def _looking_ahead(evidence: Evidence) -> str:
    """Explain the one leak that is a system's own (arXiv:2405.03133 App. A)."""
    arms = [
        arm.name
        for arm in evidence.arms
        if arm.method.get("first_segment") == "own_mean"
        and arm.method["method"] != "lory_to_sparse"  # it does not end as a Lory
    ]
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
    for part in PARTS:
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
    yield _other_proofs(facts, runs)


def _other_proofs(facts: Sequence[Mapping[str, Any]], runs: tuple[str, ...]) -> Value:
    """Return how many proofs hold that have no column of their own, and why others do not."""
    if any("laws" not in fact for fact in facts):
        return nothing("made before these were proved")
    found = [
        verdict
        for fact in facts
        for verdict in verdicts(fact)
        if not verdict.proof.startswith(("causality", "batch invariance", "routers"))
    ]
    broken = dict.fromkeys(v.proof for v in found if v.outcome == "unexpected")
    declared = dict.fromkeys(f"{v.proof}: {v.reason}" for v in found if v.outcome == "declared")
    hold = sum(verdict.outcome == "holds" for verdict in found)
    text = f"BROKEN {' and '.join(broken)}" if broken else f"{hold} of {len(found)}"
    return Value(text, float(hold), runs=runs, note="; ".join(declared))


def _tried(facts: Mapping[str, Any], law: str) -> list[Mapping[str, Any]]:
    """Return what was found about a law, under each rule and in every part of it."""
    if "laws" not in facts:  # a result from before the two rules were told apart
        return [facts[law.replace(" ", "_")]]
    rules = facts["laws"].values()
    return [found for rule in rules for name, found in rule.items() if name.startswith(law)]
