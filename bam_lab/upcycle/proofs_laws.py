"""Causality, batch and document invariance, by changing what a logit must not depend on.

A change of the tokens from some place on may move no logit before it; a change of other rows may
move none of mine; where attention stays inside documents, a change of other documents neither. All
are tried under the training and under the inference rule, on a probe. What is found stands beside
what `spec/laws.py` declares; a break that is not declared is a bug.
"""

from typing import Any

import torch
from torch import Tensor

from bam_lab.model.transformer import Transformer
from bam_lab.spec.laws import Law, Rule, broken_laws, mixes_documents
from bam_lab.spec.methods import MethodSpec
from bam_lab.spec.model import END_OF_TEXT_ID
from bam_lab.upcycle.probe import TOLERANCE, training_pass

RULES: tuple[Rule, ...] = ("training", "inference")
INSIDE_FIRST = "inside the first segment"


def laws(probe: Transformer, rows: Tensor) -> dict[str, Any]:
    """Return rule -> law -> the largest change of a logit that must not move, and the verdict.

    Each law has `max_logit_change`, `holds`, `broken` (the places where it does not) and `declared`
    (why it is known to break; None where it is to hold).

    Args:
        probe: a model whose experts differ and whose routers have opinions.
        rows: token windows [N, T+1], N at least 2.
    """
    return {rule: _laws(probe, rows, rule) for rule in RULES}


def places(method: MethodSpec, length: int) -> dict[str, int]:
    """Return where suffixes begin that are changed, by name.

    At every border of a segment, inside the first and the second; elsewhere at token 1 and half.
    """
    segment = getattr(method, "segment_len", None)
    if segment is None or segment >= length:
        return {"from token 1 on": 1, "at the half": max(length // 2, 1)}
    inside = max(segment // 2, 1)
    borders = range(segment, length, segment)
    found = {f"at border {i}": border for i, border in enumerate(borders, start=1)}
    second = {"inside the second segment": segment + inside} if segment + inside < length else {}
    return {INSIDE_FIRST: inside, **found, **second}


def suffix_changes(rows: Tensor, start: int) -> list[tuple[Tensor, Tensor]]:
    """Return rows, of which the last one goes on otherwise from `start` on, and its logits before.

    One row alone: what rows do to each other is batch invariance. Once it goes on with other text;
    once it says nothing but its last token, which few experts then want, or all.
    """
    tokens, mine = rows[:, :-1], _mine(rows)
    changed = torch.zeros_like(mine)
    changed[:, start:] = mine[:, start:]
    suffixes = _other_text(tokens), tokens[-1:, -1:]
    return [(torch.where(changed, suffix, tokens), mine & ~changed) for suffix in suffixes]


def row_changes(rows: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return rows of which all but the last are changed, and where logits must not move.

    The last: where places run out row by row, it is the one that the others crowd out. Once they
    are other text; once they say nothing but the last row's last token, so that experts whose load
    is even on text have more than their places.
    """
    tokens, mine = rows[:, :-1], _mine(rows)
    others = _other_text(tokens), tokens[-1:, -1:]
    return [(torch.where(mine, tokens, other), mine) for other in others]


def document_changes(rows: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return rows of which the last has other text around a document, and that document's places.

    The document takes the second third of the row, with an end-of-text at its start and behind it.
    """
    tokens, mine = rows[:, :-1].clone(), _mine(rows)
    third = tokens.shape[1] // 3
    tokens[-1, [third, 2 * third]] = END_OF_TEXT_ID
    held = torch.zeros_like(mine)
    held[-1, third : 2 * third] = True
    changed = torch.where(mine & ~held, _other_text(tokens), tokens)
    changed[-1, 2 * third] = END_OF_TEXT_ID
    return [(tokens, held), (changed, held)]


def _mine(rows: Tensor) -> Tensor:
    """Mark the tokens of the last row."""
    mine = torch.zeros_like(rows[:, :-1], dtype=torch.bool)
    mine[-1] = True
    return mine


def _other_text(tokens: Tensor) -> Tensor:
    return tokens.flip(0, 1).roll(1, 1)


@torch.no_grad()
def _laws(probe: Transformer, rows: Tensor, rule: Rule) -> dict[str, Any]:
    before = _logits(probe, rows[:, :-1], rule)

    def moved(change: tuple[Tensor, Tensor]) -> float:
        changed, held = change
        return float((_logits(probe, changed, rule) - before)[held].abs().max())

    declared = broken_laws(probe.method, rule)
    suffixes = {
        place: max(moved(change) for change in suffix_changes(rows, start))
        for place, start in places(probe.method, rows.shape[1] - 1).items()
    }
    # What looks ahead anywhere has a law inside the first segment only where that is declared too.
    only_anywhere = "causality" in declared and "causality inside the first segment" not in declared
    apart = () if only_anywhere else (INSIDE_FIRST,)
    inside = {place: change for place, change in suffixes.items() if place in apart}
    found: dict[Law, dict[str, float]] = {
        "causality": {place: c for place, c in suffixes.items() if place not in inside}
    }
    if inside:
        found["causality inside the first segment"] = inside
    found["batch invariance"] = {"": max(moved(change) for change in row_changes(rows))}
    facts: dict[str, Any] = {law: _fact(c, declared.get(law)) for law, c in found.items()}
    if not probe.spec.cross_document_attention:
        (text, held), (changed, _) = document_changes(rows)
        change = (_logits(probe, changed, rule) - _logits(probe, text, rule))[held].abs().max()
        facts["document invariance"] = _fact(
            {"": float(change)}, mixes_documents(probe.method, rule)
        )
    return facts


def _fact(changes: dict[str, float], why: str | None) -> dict[str, Any]:
    broken = [place for place, change in changes.items() if not change <= TOLERANCE]
    return {
        "max_logit_change": max(changes.values()),
        "holds": not broken,
        "broken": [place for place in broken if place],
        "declared": why,
    }


def _logits(model: Transformer, tokens: Tensor, rule: Rule) -> Tensor:
    draw = training_pass() if rule == "training" else None
    return model.logits(model(tokens, draw).hidden)
