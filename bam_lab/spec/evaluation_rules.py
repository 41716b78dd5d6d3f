"""Check what an ablation's `evaluate:` asks: suites that are there, lengths that fit, columns."""

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from bam_lab.errors import SpecError
from bam_lab.spec.ablation import AblationSpec
from bam_lab.spec.evaluation import (
    CompletionProbe,
    DistanceProbe,
    FirstSegmentProbe,
    NeedleProbe,
    PositionsProbe,
    Probe,
    SlidingProbe,
)
from bam_lab.spec.experts import parts_of
from bam_lab.spec.measures import MEASURES, MeasureName
from bam_lab.spec.messages import Loc
from bam_lab.spec.methods import LoryMethod, MethodSpec, SegmentMoEMethod
from bam_lab.spec.model import ModelSpec
from bam_lab.spec.reader import Document
from bam_lab.spec.task_files import Suite, read_suite
from bam_lab.spec.tasks import Continuation, LastWord, NextLine, TaskSpec

EVALUATE = "evaluate"
NEEDS: dict[MeasureName, str] = {
    "task_accuracy": "suites",
    "accuracy_by_task": "suites",
    "rerouting_gain": "rerouted",
    "completion_perplexity": "completion",
    "prompt_mismatch": "completion",
    "needle_accuracy": "needles",
    "position_gradient": "positions",
    "mutual_information": "routing",
    "latency": "latency",
}
"""Measure -> what of `evaluate:` gives it: a field, or a probe."""


def suite_reference(name: str, ablation: Path) -> str:
    """Return a suite's name as it is; a path is relative to the ablation's file."""
    is_path = "/" in name or Path(name).suffix in (".yaml", ".yml")
    return str(ablation.parent / name) if is_path else name


def segment_lens_of(methods: Iterable[MethodSpec]) -> tuple[int, ...]:
    """Return the segment lengths of the methods that route segments, each once, the least first."""
    parts = (part for method in methods for part in parts_of(method))
    lengths = {m.segment_len for m in parts if isinstance(m, LoryMethod | SegmentMoEMethod)}
    return tuple(sorted(lengths))


def evaluation_problems(
    document: Document,
    spec: AblationSpec,
    methods: Collection[MethodSpec],
    domains: Collection[str],
) -> Iterator[str]:
    """Check what hangs on no size.

    Args:
        document: the ablation's file.
        spec: what it says.
        methods: of its arms; none where a problem hides them.
        domains: of its corpus; none likewise.
    """
    asked = spec.evaluate
    yield from _suite_problems(document, asked.suites, domains)
    if asked.experts and not asked.suites:
        text = "has no effect without suites: dense models are asked nothing else. Remove it."
        yield document.problem((EVALUATE, "experts"), text)
    if asked.rerouted and (not asked.suites or (methods and not segment_lens_of(methods))):
        text = "has no effect without suites and an arm that routes segments. Remove it."
        yield document.problem((EVALUATE, "rerouted"), text)
    kinds = [probe.probe for probe in asked.probes]
    for index, probe in enumerate(asked.probes):
        place = (EVALUATE, "probes", index)
        if kinds.index(probe.probe) < index:
            text = f"must be another probe than those before, got {probe.probe!r} again. Remove it."
            yield document.problem(place, text)
        if methods:
            yield from _segment_problems(document, place, probe, segment_lens_of(methods))
    given = {
        "suites": asked.suites,
        "rerouted": asked.rerouted,
        "routing": asked.routing,
        "latency": asked.latency,
    }
    given |= dict.fromkeys(kinds, True)
    for index, column in enumerate(spec.report.columns):
        name = column.removeprefix("measure/")
        if name in MEASURES and (needed := NEEDS.get(name)) and not given.get(needed):
            what = f"probe {needed!r}" if needed not in type(asked).model_fields else needed
            text = f"must not ask for {name} where `{EVALUATE}:` has no {what}. Add it there."
            yield document.problem(("report", "columns", index), text)


def _suite_problems(
    document: Document, names: tuple[str, ...], domains: Collection[str]
) -> Iterator[str]:
    asked: dict[str, tuple[int, str]] = {}
    for index, name in enumerate(names):
        place = (EVALUATE, "suites", index)
        if name in names[:index]:
            text = f"must stand once, got {name!r} again. Remove it."
            yield document.problem(place, text)
            continue
        try:
            suite = read_suite(suite_reference(name, Path(document.file)))
        except SpecError as error:
            yield from (document.problem(place, f"is no suite: {text}") for text in error.problems)
            continue
        for one in suite.asked:
            shots, other = asked.setdefault(one.name, (one.shots, name))
            if shots != one.shots:
                text = f"must ask {one.name} with as many shots as {other} does ({shots}), got "
                yield document.problem(place, f"{text}{one.shots}. Take one of the two.")
        yield from _domain_problems(document, place, suite, domains)


def _domain_problems(
    document: Document, place: Loc, suite: Suite, domains: Collection[str]
) -> Iterator[str]:
    if not domains:
        return
    for one in suite.asked:
        read = one.task.documents if isinstance(one.task, TaskSpec) else None
        if isinstance(read, Continuation | LastWord | NextLine) and read.domain not in domains:
            text = f"must read domains of the corpus ({', '.join(domains)}), {one.name} reads "
            yield document.problem(place, f"{text}{read.domain!r}. Take another suite or corpus.")


def _segment_problems(
    document: Document, place: Loc, probe: Probe, lengths: tuple[int, ...]
) -> Iterator[str]:
    """Check a probe that takes its segments from the arms."""
    if not probe.by_segments:
        return
    if isinstance(probe, CompletionProbe) and len(lengths) < 2:
        text = "has no effect where fewer than two segment lengths are trained, got "
        yield document.problem((*place, "across"), f"{text}{list(lengths)}. Remove it.")
    if isinstance(probe, FirstSegmentProbe | PositionsProbe) and len(lengths) != 1:
        text = "must be given where the arms have not one segment length, got "
        yield document.problem((*place, "segment_len"), f"{text}{list(lengths)}. Write it.")


def length_problems(document: Document, spec: AblationSpec, model: ModelSpec) -> Iterator[str]:
    """Check the probes' lengths against the model's context."""
    context = model.max_seq_len
    for index, probe in enumerate(spec.evaluate.probes):
        place: Loc = (EVALUATE, "probes", index)
        match probe:
            case CompletionProbe(prompts=prompts, completion=completion):
                if max(prompts) + completion > 1:
                    text = "must leave room for the completion in the context, got "
                    text += f"{max(prompts):g} and {completion:g} of it. Take shorter ones."
                    yield document.problem((*place, "prompts"), text)
                yield from _a_token(document, (*place, "prompts"), min(prompts), context)
                yield from _a_token(document, (*place, "completion"), completion, context)
            case DistanceProbe(prompt=prompt):
                yield from _a_token(document, (*place, "prompt"), prompt, context)
            case NeedleProbe(lengths=lengths):
                yield from _a_token(document, (*place, "lengths"), min(lengths), context)
            case FirstSegmentProbe(segment_len=length) | PositionsProbe(segment_len=length):
                if length is not None and length >= context:
                    text = f"must be below the model's {context} tokens, got {length}. Lower it."
                    yield document.problem((*place, "segment_len"), text)
            case SlidingProbe(context=again):
                yield from _a_token(document, (*place, "context"), again, context)


def _a_token(document: Document, place: Loc, part: float, context: int) -> Iterator[str]:
    if round(part * context) < 1:
        text = f"must be a token or more of the model's {context}, got {part:g} of them. Raise it."
        yield document.problem(place, text)
