"""Score needles: by likelihood among candidates, with known chance, and by generation."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from bam_lab.errors import SpecError
from bam_lab.evaluate.likelihood import (
    BATCH_TOKENS,
    Model,
    Pair,
    Precision,
    continuation_nats,
    max_seq_len,
    routes_segments,
)
from bam_lab.evaluate.probes.needles import Cell
from bam_lab.evaluate.probes.rows import Row, row
from bam_lab.evaluate.probes.segment_lens import segment_facts
from bam_lab.model.context import RoutingRule


class Found(NamedTuple):
    """Say how one needle was answered.

    Attributes:
        likeliest: the right candidate is likelier than any other; of equals the first is taken.
        generated: greedy decoding gives the right answer, from its first token to its last.
        nats: of the right answer.
    """

    likeliest: bool
    generated: bool
    nats: float


def score_needles(
    model: Model,
    cells: Sequence[Cell],
    *,
    precision: Precision,
    rule: RoutingRule = "prompt",
    batch_tokens: int = BATCH_TOKENS,
) -> list[list[Found]]:
    """Return how each needle of each cell was answered.

    All candidates of a question are as long and are compared by their nats as they are. Generation
    needs no decoding: an answer is what greedy decoding gives if each of its tokens is the
    likeliest after those before it.

    Raises:
        SpecError: the method has no causal inference rule, `rule` has no effect, or a prompt and
            its answer are too long for the model.
        InputError: a token is not in the model's vocabulary.
    """
    needles = [needle for cell in cells for needle in cell.needles]
    longest = max((len(own.prompt) + len(own.candidates[0]) for own in needles), default=0)
    if longest > max_seq_len(model):  # as generation has it; the likelihood alone reads one less
        raise SpecError(
            f"lengths must leave room for the answers in max_seq_len {max_seq_len(model)}, got "
            f"prompts and answers of up to {longest} tokens. Ask for shorter prompts."
        )
    pairs: list[Pair] = [(own.prompt, answer) for own in needles for answer in own.candidates]
    scored = iter(
        continuation_nats(model, pairs, precision=precision, batch_tokens=batch_tokens, rule=rule)
    )
    found = []
    for needle in needles:
        own = list(islice(scored, len(needle.candidates)))
        nats = [one.nats for one in own]
        right = own[needle.answer]
        found.append(Found(nats.index(min(nats)) == needle.answer, right.greedy, right.nats))
    each = iter(found)
    return [list(islice(each, len(cell.needles))) for cell in cells]


def needle_rows(
    model: Model,
    cells: Sequence[Cell],
    *,
    precision: Precision,
    rule: RoutingRule = "prompt",
    batch_tokens: int = BATCH_TOKENS,
) -> list[Row]:
    """Return how many needles are found, by task, length and depth; and over depths, and lengths.

    `accuracy` is by likelihood, `generated` by generation, which has no chance level: what guessing
    gives depends on what one knows of the form. Where there are several needles only accuracies
    over all depths have one: at one depth, whoever takes the last needle is always right, or
    never. `nll` is of the right answer, a token's. For a method that routes no segments `rule` is
    left out of the rows.

    Raises:
        SpecError, InputError: as `score_needles` does.
    """
    found = score_needles(model, cells, precision=precision, rule=rule, batch_tokens=batch_tokens)
    scored = list(zip(cells, found, strict=True))
    facts = segment_facts(model, model) | {"rule": rule if routes_segments(model) else None}
    rows: list[Row] = []
    for asked in dict.fromkeys(cell.asked for cell in cells):
        own = [(cell, each) for cell, each in scored if cell.asked == asked]
        lengths = list(dict.fromkeys(cell.length for cell, _ in own))
        for length in lengths:
            of_length = [(cell, each) for cell, each in own if cell.length == length]
            for cell, each in of_length:
                rows += _rows([(cell, each)], length, cell.depth, facts)
            rows += _rows(of_length, length, None, facts)
        rows += _rows(own, None, None, facts)
    return rows


def _rows(
    scored: Sequence[tuple[Cell, Sequence[Found]]],
    length: int | None,
    depth: float | None,
    facts: dict[str, Any],
) -> Iterator[Row]:
    asked, each = scored[0][0].asked, [one for _, found in scored for one in found]
    tokens = sum(len(own.candidates[0]) for cell, _ in scored for own in cell.needles)
    n = len(each)
    common = facts | {
        "domain": "*",
        "length": length,
        "depth": depth,
        "context": length,
        "distractors": asked.distractors,
    }
    chance = None if asked.distractors and depth is not None else 1 / asked.candidates
    accuracy = sum(one.likeliest for one in each) / n
    yield row(asked.name, "accuracy", accuracy, n, chance=chance, unit="", **common)
    yield row(asked.name, "generated", sum(one.generated for one in each) / n, n, unit="", **common)
    nats = sum(one.nats for one in each) / tokens
    yield row(asked.name, "nll", nats, n, unit="nats/token", **common)
