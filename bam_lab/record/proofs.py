"""What the facts of a proof say: each holds, is known to be broken, or is a surprise.

The facts are plain data, made by `upcycle/receipt.py` and kept with the upcycle stage as
`receipt.json`; reading them needs no torch.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Facts = Mapping[str, Any]
Outcome = Literal["holds", "declared", "unexpected"]


@dataclass(frozen=True)
class Verdict:
    """Hold one proof's result.

    Attributes:
        outcome: `declared` is a break that `spec/laws.py` gives the reason of; `unexpected` a break
            without one, a bug.
        found: what was measured, a few words.
        reason: why it is declared; empty elsewhere.
    """

    proof: str
    outcome: Outcome
    found: str
    reason: str = ""


def verdicts(facts: Facts) -> list[Verdict]:
    """Return every proof's result, in a fixed order."""
    return [
        *_origins(facts),
        *_laws(facts),
        *_identities(facts),
        *_gradients(facts),
        *_costs(facts),
    ]


def _origins(facts: Facts) -> Iterator[Verdict]:
    coverage = facts["coverage"]
    differing = coverage["differing"]
    found = f"{coverage['tensors']} tensors, one origin each"
    if differing:
        found = "not what their origin makes: " + ", ".join(differing)
    yield Verdict("origins", "holds" if coverage["holds"] else "unexpected", found)


def _laws(facts: Facts) -> Iterator[Verdict]:
    for rule, found in facts["laws"].items():
        for law, fact in found.items():
            # A declared break need not show on every model: a limit that is not reached drops none.
            yield _verdict(f"{law}, {rule}", fact)


def _identities(facts: Facts) -> Iterator[Verdict]:
    for name, fact in facts.get("identities", {}).items():
        yield _verdict(f"{name}, scaled by gates" if fact.get("scaled") else name, fact)


def _verdict(proof: str, fact: Facts) -> Verdict:
    found = change(fact["max_logit_change"])
    if fact["holds"] and fact["declared"]:
        return Verdict(proof, "declared", f"not seen here ({found})", fact["declared"])
    if fact["holds"]:
        return Verdict(proof, "holds", found)
    places = shortened(fact.get("broken", ()))
    found = f"{found}, {places}" if places else found
    if fact["declared"]:
        return Verdict(proof, "declared", found, fact["declared"])
    return Verdict(proof, "unexpected", found)


def change(largest: float) -> str:
    """Return the largest change of a logit as text."""
    return f"{largest:.1e}" if largest else "0"


def shortened(places: list[str] | tuple[str, ...]) -> str:
    """Return places in a row; of many, the first two and how many more."""
    if len(places) <= 3:
        return " and ".join(places)
    return f"{places[0]}, {places[1]} and {len(places) - 2} more"


def _gradients(facts: Facts) -> Iterator[Verdict]:
    reached = facts["gradients"]
    without = reached["without"]
    found = "none for " + ", ".join(without) if without else f"all {reached['tensors']} tensors"
    yield Verdict("gradient of the language-model loss", _outcome(not without), found)
    routers = facts.get("router_gradients", {})
    if routers:
        deaf = [name for name, gradient in routers.items() if not gradient["learns"]]
        found = "none for " + ", ".join(deaf) if deaf else f"all {len(routers)} routers"
        yield Verdict("routers learn", _outcome(not deaf), found)
    if positions := facts.get("position_gradients"):
        parts = (("first_segment", "first segment"), ("later", "elsewhere"))
        told = [f"{positions[key]:.1e} {where}" for key, where in parts if key in positions]
        if positions["without"]:
            told.append(f"none for {positions['without']}")
        yield Verdict("positions learn", _outcome(not positions["without"]), ", ".join(told))


def _costs(facts: Facts) -> Iterator[Verdict]:
    for key, proof in (
        ("parameters", "parameters"),
        ("executed_forward", "executed FLOPs, forward"),
        ("executed_training", "executed FLOPs, training"),
        ("decoded_token", "executed FLOPs, a decoded token"),
    ):
        if key not in facts["cost"]:  # the method cannot generate
            continue
        fact = facts["cost"][key]
        told = f"{fact['formula']:,}" if fact["holds"] else f"{fact['formula']:,} by formula"
        if not fact["holds"]:
            told += f", {fact['model']:,} by the model"
        yield Verdict(proof, _outcome(fact["holds"]), told)


def _outcome(holds: bool) -> Literal["holds", "unexpected"]:
    return "holds" if holds else "unexpected"
