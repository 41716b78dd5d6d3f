"""The stages that time models: `calibrate` for a match, `latency` for a report.

Models begin at random and read random tokens: what a step takes hangs on shapes, and hardly on
weights or text. All are held at once and take their turns, so that a slow moment of the machine
meets them all; a model's seconds are taken round by round (`paired`). The artifact fixes what is
trained, so it is made once: another measurement would be another match.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from bam_lab.evaluate.latency import Load, completion, latency_rows, measure, random_model
from bam_lab.evaluate.rounds import Seconds, in_rounds, paired
from bam_lab.evaluate.together import together
from bam_lab.model.generate import generate
from bam_lab.model.transformer import Transformer, initialise
from bam_lab.record.files import write_json
from bam_lab.run.context import Progress, StageContext
from bam_lab.run.stages_common import decode, decode_method
from bam_lab.run.stages_evaluate import write_csv
from bam_lab.run.timed import now, timed, training_loss, training_step
from bam_lab.spec.evaluation import LatencySpec
from bam_lab.spec.model import ModelSpec
from bam_lab.train.numerics import prepare

LATENCY = (
    "kind",
    "arm",
    "batch",
    "prompt",
    "new",
    "computed",
    "metric",
    "statistic",
    "unit",
    "value",
    "n",
)
NAME = "calibration.json"
DECODED_ROWS = 4
"""Completions side by side; prompt and completion each take half of the model's context, at most
`LONGEST` tokens."""
LONGEST = 64


def calibrate(context: StageContext) -> None:
    """Write `calibration.json`: seconds by model, in the order of the spec, and every turn's."""
    prepare(context.threads)
    works = [_work(context, raw) for raw in context.spec["models"]]
    taken = in_rounds(works, tell=lambda done, all_: _progress(context, done, all_))
    turns = [[seconds for (seconds,) in rounds] for rounds in taken]
    content = {"seconds": paired(turns), "turns": turns}
    write_json(context.work / NAME, content)
    context.facts["seconds"] = content["seconds"]


def latency(context: StageContext) -> None:
    """Write `scores.csv`: seconds of completions by arm, batch and way of computing; `turns.json`.

    Arms are numbered, in the order of the spec. `computed` is `apart` (attention, then FFN) or
    `together` (both at the same time; of parallel blocks only). Arms that cannot do a load are left
    out, and `left_out.json` says why.
    """
    prepare(context.threads)
    spec, device = context.spec, context.numerics.device
    asked = decode(spec["load"], LatencySpec)
    rows: list[dict[str, Any]] = []
    left_out: dict[str, str] = {}
    turns: list[dict[str, Any]] = []
    shape = decode(spec["model"], ModelSpec)
    for batch in asked.batches:
        load = Load(batch, asked.prompt, asked.new)
        models = {
            str(i): random_model(
                shape, decode_method(raw["method"]), raw["num_experts"], load, device
            )
            for i, raw in enumerate(spec["models"])
        }
        for computed in ("apart", "together") if asked.together else ("apart",):
            with ExitStack() as stack:
                if computed == "together":
                    if shape.block != "parallel":
                        left_out["together"] = "of parallel blocks alone"
                        continue
                    models = {arm: stack.enter_context(together(m)) for arm, m in models.items()}
                precision = context.numerics.precision
                works = {arm: completion(m, load, precision, device) for arm, m in models.items()}
                found = measure(
                    works,
                    clock=lambda: now(device),
                    tell=lambda done, all_: _progress(context, done, all_),
                )
            turns += [
                {"arm": arm, "batch": batch, "computed": computed, "seconds": own}
                for arm, own in found.turns.items()
            ]
            left_out |= {f"{arm} {batch} {computed}": why for arm, why in found.failures.items()}
            rows += [row | {"computed": computed} for row in latency_rows(found, load)]
    write_csv(context.work / "scores.csv", LATENCY, rows)
    write_json(context.work / "turns.json", turns)
    write_json(context.work / "left_out.json", left_out)


def _work(context: StageContext, raw: dict[str, Any]) -> Callable[[], Seconds]:
    """Return what does one unit of the measured work and returns its seconds."""
    spec, device = decode(context.spec["model"], ModelSpec), context.numerics.device
    generator = torch.Generator().manual_seed(0)
    model = Transformer(spec, decode_method(raw["method"]), raw["num_experts"])
    model = initialise(model, generator).to(device)
    rows = context.spec.get("batch_sequences", DECODED_ROWS)
    tokens = torch.randint(spec.vocab_size, (rows, spec.max_seq_len + 1), generator=generator)
    tokens, precision = tokens.to(device), context.numerics.precision
    if context.spec["measures"] == "training step":
        step = training_step(model, lambda: training_loss(model, tokens), precision, device)
        return lambda: (sum(step()[:2]),)
    return lambda: (timed(lambda: _complete(model, tokens), precision, device),)


def _complete(model: Transformer, tokens: Tensor) -> None:
    length = min(model.spec.max_seq_len // 2, LONGEST)
    generate(model.eval(), tokens[:, :length], None, length, end=None)


def _progress(context: StageContext, done: int, total: int) -> None:
    context.check_stop()
    context.report(Progress(done, total, note="timing the arms in turn"))
