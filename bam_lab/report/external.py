"""Checkpoints that are no arms: rows of their own class, never matched and never ranked.

Another tokenizer cuts the same text into other tokens, so a loss a token of its own says nothing
beside ours. Bits per byte compare as they stand; the perplexity is a token of *our* tokenizer,
exp(nats of the text / our tokens of it), and is shown only where both read the same bytes.
"""

import math

from bam_lab.report.blocks import arm_cells
from bam_lab.report.evidence import Evidence
from bam_lab.report.scope import number
from bam_lab.report.table import Column, Row, Table, Value, hoist, missing, nothing
from bam_lab.spec.external import External


def external_rows(evidence: Evidence, columns: int) -> list[Row]:
    """Return a row a checkpoint for the table of absolute values.

    Args:
        evidence: the whole evidence, or the view of one setting.
        columns: how many columns a domain has; perplexity and bits per byte are the first two.
    """
    rows = []
    for one in evidence.external:
        values = []
        for domain in evidence.domains:
            values += _values(evidence, one, domain)
            values += [nothing("no arm of the paper's table")] * (columns - 2)
        note = f"{one.id} is an external checkpoint, not matched"
        note += f": {one.note.rstrip('.')}." if one.note else "."
        rows.append(Row(one.id, tuple(values), "external", note))
    return rows


def external_table(evidence: Evidence) -> Table | None:
    """Return what the checkpoints are and who scored them; None where there are none."""
    if not evidence.external:
        return None
    rows = []
    for one in evidence.external:
        trained = one.training_tokens
        weights = f"weights {one.checkpoint.sha256}"
        values = (
            Value(one.title),
            Value(one.checkpoint.source, title=weights),
            Value(one.checkpoint.revision, title=weights),
            Value(number(one.params_total), float(one.params_total)),
            Value(number(one.params_active), float(one.params_active)),
            nothing("its makers do not say")
            if trained is None
            else Value(number(trained), float(trained)),
            Value(f"{one.context:,}", float(one.context)),
            Value(one.scored_by),
        )
        rows.append(hoist(Row(one.id, values, "external")))
    return Table(
        label="external",
        title="External checkpoints, not matched",
        caption=(
            "Trained by others, on other text and at another cost: no match holds for them, they "
            "are not ranked, and no claim speaks of them."
        ),
        corner="checkpoint",
        columns=(
            Column("is", align="left"),
            Column("from", align="left"),
            Column("revision", align="left"),
            Column("parameters"),
            Column("active"),
            Column("trained on, tokens"),
            Column("context"),
            Column("scored by", align="left"),
        ),
        rows=tuple(rows),
    )


def external_caption(evidence: Evidence) -> str:
    """Return the sentence on these rows for a caption; empty where there are none."""
    if not evidence.external:
        return ""
    return (
        " External checkpoints stand below the arms, not matched and not ranked; their perplexity "
        "is a token of this tokenizer, from the loss of the same text."
    )


def _values(evidence: Evidence, one: External, domain: str) -> list[Value]:
    """Return perplexity and bits per byte on one domain, or why they do not compare."""
    if why := _other_text(evidence, one):
        return [missing(why)] * 2
    score = next((score for score in one.scores if score.domain == domain), None)
    if score is None:
        return [missing(f"{one.id} has no score on {domain}")] * 2
    title = f"{score.tokens:,} tokens of its own tokenizer, {score.bytes:,} bytes"
    bits = score.nats / math.log(2) / score.bytes
    compressed = Value(f"{bits:.3f}", bits, title=title)
    ours = [c for c in arm_cells(evidence, evidence.baseline, domain) if c.nll is not None]
    if not ours:
        return [missing("this ablation has no score to count tokens by yet"), compressed]
    if ours[0].bytes != score.bytes:
        why = f"{one.id} read {score.bytes:,} bytes of {domain}, the arms {ours[0].bytes:,}"
        return [missing(why), compressed]
    perplexity = math.exp(score.nats / ours[0].tokens)
    return [Value(f"{perplexity:.2f}", perplexity, title=title), compressed]


def _other_text(evidence: Evidence, one: External) -> str:
    digest = evidence.corpus.get("digest")
    if digest is None or digest == one.corpus:
        return ""
    return f"{one.id} was scored on another corpus ({one.corpus[:16]}…, here {digest[:16]}…)"
