"""The stages that look into a trained model: its routing on held-out text, and probes.

Both write `scores.csv`: rows of `evaluate/routing.py`, or of `evaluate/probes/rows.py`.
A probe that a model cannot be asked (a method without a rule of inference, no learned positions)
leaves a file without rows, and `left_out.json` says why.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, assert_never

from pydantic import TypeAdapter

from bam_lab.data.tokens import tokenizer as tokenizers
from bam_lab.errors import SpecError
from bam_lab.evaluate.likelihood import Model
from bam_lab.evaluate.probes import rows as probe_rows
from bam_lab.evaluate.probes.completion import completion_rows
from bam_lab.evaluate.probes.drift import drift_rows, no_drift
from bam_lab.evaluate.probes.first_segment import first_segment_rows
from bam_lab.evaluate.probes.long import distance_rows, own_completions
from bam_lab.evaluate.probes.needle_scores import needle_rows
from bam_lab.evaluate.probes.needles import ASKED, needle_cells
from bam_lab.evaluate.probes.positions import no_positions, position_rows
from bam_lab.evaluate.probes.segment_lens import segment_len_of
from bam_lab.evaluate.probes.sliding import sliding_rows
from bam_lab.evaluate.probes.texts import switched, texts
from bam_lab.evaluate.routing import homes_of, measure
from bam_lab.model.transformer import Transformer
from bam_lab.record.files import write_json
from bam_lab.run.context import Progress, StageContext
from bam_lab.run.stages_common import TOKENS, load_any
from bam_lab.run.stages_evaluate import write_csv
from bam_lab.spec.evaluation import (
    CompletionProbe,
    DistanceProbe,
    FirstSegmentProbe,
    NeedleProbe,
    PositionsProbe,
    Probe,
    SlidingProbe,
)
from bam_lab.train.numerics import prepare

ROUTING = ("kind", "layer", "router", "expert", "domain", "metric", "value", "n")
EXAMPLES = ("layer", "router", "expert", "token", "text", "share", "n")
LEFT_OUT = "left_out.json"
Rows = list[dict[str, Any]]
TextOf = tuple[Path, Sequence[str], str]
"""Tokens, domains and split: whose held-out text is read."""


def routing(context: StageContext) -> None:
    """Write `scores.csv`, and `tokens.csv` with examples of tokens by expert."""
    prepare(context.threads)
    spec, model = context.spec, _model(context)
    assert isinstance(model, Transformer)
    context.report(Progress(0, 1, note="held-out text"))
    found = measure(
        model,
        context.inputs["tokenizer"] / TOKENS,
        spec["domains"],
        spec["split"],
        spec["seq_len"],
        spec["max_tokens"],
        context.numerics.precision,
        homes_of(spec["experts"], spec["general"]),
        spec["batch_sequences"],
    )
    write_csv(context.work / "scores.csv", ROUTING, found.rows)
    tokenizer = tokenizers.load(context.inputs["tokenizer"] / "tokenizer")
    examples = [row | {"text": tokenizer.decode([row["token"]])} for row in found.tokens]
    write_csv(context.work / "tokens.csv", EXAMPLES, examples)


def probe(context: StageContext) -> None:
    """Write `scores.csv`; and `left_out.json`, where the model cannot be asked all of it."""
    prepare(context.threads)
    asked: TypeAdapter[Probe] = TypeAdapter(Probe)
    spec = asked.validate_python(context.spec["probe"], strict=False)
    context.report(Progress(0, 1, note=spec.probe))
    model = _model(context)
    rows: Rows = []
    left_out: dict[str, str] = {}
    try:
        rows = _rows(context, spec, model, left_out)
    except SpecError as error:  # this model has no answer to such a question
        left_out[spec.probe] = str(error)
    write_csv(context.work / "scores.csv", probe_rows.COLUMNS, rows)
    write_json(context.work / LEFT_OUT, left_out)


def _model(context: StageContext) -> Model:
    return load_any(context.inputs["model"]).to(context.numerics.device).eval()


def _rows(context: StageContext, spec: Probe, model: Any, left_out: dict[str, str]) -> Rows:
    raw = context.spec
    text_of: TextOf = (context.inputs["tokenizer"] / TOKENS, raw["domains"], raw["split"])
    precision, size = context.numerics.precision, raw["seq_len"]

    def tokens(part: float) -> int:
        return max(round(part * int(size)), 1)

    match spec:
        case CompletionProbe():
            prompts, completion = [tokens(p) for p in spec.prompts], tokens(spec.completion)
            text = texts(*text_of, max(prompts) + completion, spec.rows)
            return completion_rows(
                model,
                text,
                prompts,
                completion,
                precision=precision,
                segment_lens=raw.get("segment_lens", ()),
            )
        case DistanceProbe():
            prompt = tokens(spec.prompt)
            return _by_distance(spec, model, text_of, prompt, size, precision, left_out)
        case NeedleProbe():
            return _needles(context, spec, model, text_of, [tokens(x) for x in spec.lengths])
        case FirstSegmentProbe():
            segment = spec.segment_len or raw["segment_lens"][0]
            return first_segment_rows(model, *text_of, size, raw["max_tokens"], precision, segment)
        case PositionsProbe():
            if why := no_positions(model):
                raise SpecError(why)
            segment = spec.segment_len or raw["segment_lens"][0]
            return position_rows(model, *text_of, size, spec.rows, segment)
        case SlidingProbe():
            again = tokens(spec.context)
            return sliding_rows(model, *text_of, size, again, raw["max_tokens"], precision)
        case _:
            assert_never(spec)


def _by_distance(
    spec: DistanceProbe,
    model: Any,
    text_of: TextOf,
    prompt: int,
    size: int,
    precision: Any,
    left_out: dict[str, str],
) -> Rows:
    """Return losses by distance, and drifts of the model's routers where it has some."""
    text, domains = texts(*text_of, size, spec.rows), text_of[1]
    text += switched(text, prompt) if spec.switched else []
    rows = distance_rows(model, text, prompt, spec.bin_len, precision=precision)
    segment = segment_len_of(model)
    whole = prompt if segment is None else max(prompt // segment, 1) * segment
    if why := no_drift(model):
        left_out["drift"] = why
        return rows
    try:
        rows += drift_rows(model, text, whole, spec.bin_len, precision=precision)
        if spec.own:
            written = own_completions(model, text[: len(domains)], whole, precision=precision)
            rows += drift_rows(
                model, written, whole, spec.bin_len, precision=precision, task="drift-own"
            )
        return rows
    except SpecError as error:
        left_out["drift"] = str(error)
        return rows


def _needles(
    context: StageContext, spec: NeedleProbe, model: Any, text_of: TextOf, lengths: list[int]
) -> Rows:
    tokenizer = tokenizers.load(context.inputs["tokenizer"] / "tokenizer")

    def encode(words: str) -> list[int]:
        return list(tokenizer.encode(words, add_special_tokens=False).ids)

    text = texts(*text_of, max(lengths), spec.count)
    rows: Rows = []
    for name in spec.tasks:
        context.check_stop()
        cells = needle_cells(
            encode, text, ASKED[name], lengths, spec.depths, spec.count, spec.rng_seed
        )
        rows += needle_rows(model, cells, precision=context.numerics.precision)
    return rows
