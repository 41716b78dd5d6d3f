"""The law of a table of origins: every tensor of the target has one origin, no source is lost."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from bam_lab.upcycle.origins import EXPERT_OPS, SHARED, Cut, Origin, Shape, Source


def check_coverage(
    table: Mapping[str, Origin],
    target: Mapping[str, Shape],
    experts: Sequence[Mapping[str, Shape]],
) -> None:
    """Check the law: every target tensor has one origin, every part of a source tensor one use.

    A shared expert's uses count apart.

    Raises:
        ValueError: naming every tensor that breaks it.
    """
    shared = Counter(s for name, o in table.items() if SHARED in name for s in o.sources)
    used = Counter(s for name, o in table.items() if SHARED not in name for s in o.sources)
    named = {(source.expert, source.tensor) for source in used | shared}
    held = {(i, name) for i, shapes in enumerate(experts) for name in shapes}
    problems = [f"{name} has no origin" for name in target if name not in table]
    problems += [f"{name} is not in the target" for name in table if name not in target]
    problems += [
        f"{name} must have shape {target[name]}, its origin gives {origin.shape}"
        for name, origin in table.items()
        if name in target and target[name] != origin.shape
    ]
    problems += [f"expert {i} has no {name}" for i, name in sorted(named - held)]
    problems += [f"{name} of expert {i} goes nowhere" for i, name in sorted(held - named)]
    problems += _misused(used) + _misused(shared)
    for name, origin in table.items():
        problems += [
            f"{source.tensor} of expert {source.expert} must have shape {own} for {name}"
            for source in origin.sources
            if (source.expert, source.tensor) in held
            and experts[source.expert][source.tensor] != (own := source_shape(origin, source))
        ]
    if problems:
        raise ValueError("\n".join(problems))


def source_shape(origin: Origin, source: Source) -> Shape:
    """Return the shape that the whole source tensor must have."""
    own = origin.shape[1:] if origin.op in EXPERT_OPS else origin.shape
    if source.cut is None or origin.op == "blend":
        return own
    return tuple(s * source.cut.parts if i == source.cut.axis else s for i, s in enumerate(own))


def _misused(used: Mapping[Source, int]) -> list[str]:
    """Name what is used twice, and the parts of a cut tensor that nobody uses."""
    problems = [
        f"{source.tensor} of expert {source.expert} is used {uses} times"
        for source, uses in used.items()
        if uses > 1
    ]
    cuts: dict[tuple[int, str], set[Cut | None]] = {}
    for source in used:
        cuts.setdefault((source.expert, source.tensor), set()).add(source.cut)
    for (expert, tensor), own in cuts.items():
        first = next(iter(own))
        wanted = {None} if first is None else {replace(first, part=i) for i in range(first.parts)}
        if own != wanted:
            problems.append(f"{tensor} of expert {expert} must be cut into parts used once each")
    return problems
