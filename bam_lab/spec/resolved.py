"""One question with all that it names, checked; and several settings of it as one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bam_lab.spec.ablation import AblationSpec
from bam_lab.spec.axes import Point, Scalar
from bam_lab.spec.budgets import place_of
from bam_lab.spec.corpus import CorpusSpec, held_out_only
from bam_lab.spec.data import DataSpec
from bam_lab.spec.external import External
from bam_lab.spec.messages import Loc
from bam_lab.spec.methods import DenseMethod, MethodSpec
from bam_lab.spec.model import ModelSpec
from bam_lab.spec.parts import domain_of
from bam_lab.spec.reader import Document
from bam_lab.spec.recipe import RecipeSpec, data_of
from bam_lab.spec.scale import ScaleSpec


@dataclass(frozen=True)
class ResolvedAblation:
    """Hold one question with all that it names, checked.

    With settings it stands for all of them: its arms are those of all, its other parts those of the
    first; `settings` has each as an ablation of its own.

    Attributes:
        arms: every arm's method, `common` laid under it; `arm@setting` where there are settings.
        data: what arms read otherwise than the recipe says; an arm that is not in it, nothing.
        overrides: what the user changed by `--set`.
        added: domains of the user's own that the run has besides those of its files.
        axes: arm -> {axis: value}, its own axes and its setting's.
        bases: arm -> its name in the file, before axes and settings.
        setting: which setting this is; empty for an ablation with one only.
        point: what the setting changes.
        read: domains that other settings read; models are evaluated on them too.
        children: the ablation of every setting; none where there is one only.
        first: under `match.across`, the first setting, in all others.
        external: scores of checkpoints that are no arms.
        measured: seconds by model (`cost/match/measured.py`); None before they are.
        document: the file, to say where something stands.
    """

    ablation: AblationSpec
    path: Path
    recipe: RecipeSpec
    scale: ScaleSpec
    scale_name: str
    model: ModelSpec
    corpus: CorpusSpec
    arms: dict[str, MethodSpec]
    overrides: tuple[str, ...] = ()
    data: dict[str, DataSpec] = field(default_factory=dict)
    added: tuple[str, ...] = ()
    axes: dict[str, dict[str, Scalar]] = field(default_factory=dict)
    bases: dict[str, str] = field(default_factory=dict)
    setting: str = ""
    point: Point = field(default_factory=Point)
    read: tuple[str, ...] = ()
    children: tuple["ResolvedAblation", ...] = ()
    first: "ResolvedAblation | None" = None
    external: tuple[External, ...] = ()
    measured: Mapping[str, float] | None = None
    document: Document | None = field(default=None, compare=False, repr=False)

    def problem(self, loc: Loc, text: str) -> str:
        """Return one message line about `loc`, an arm's name as it is among `arms`."""
        written = tuple(str(part).partition("@")[0] for part in loc)
        where = self.document.where(written) if self.document else str(self.path)
        return f"{where}: {'.'.join(map(str, loc))} {text}"

    @property
    def settings(self) -> tuple[tuple[str, "ResolvedAblation"], ...]:
        """Return every setting's name and its ablation; this one under "" where it has none."""
        return tuple((child.setting, child) for child in self.children) or (("", self),)

    @property
    def changes(self) -> tuple[str, ...]:
        """Return what differs from the files, as the options that changed it."""
        return (
            *(f"--set {text}" for text in self.overrides),
            *(f"--domain {name}" for name in self.added),
        )

    @property
    def overridden(self) -> bool:
        """Return whether the user changed the files' meaning.

        Such runs are marked and never enter a published report.
        """
        return bool(self.changes)

    def reads(self, arm: str) -> DataSpec:
        """Return what an arm's branches and mixture phase read, nothing left to the recipe."""
        return data_of(self.of(arm).recipe, self.data.get(arm))

    def of(self, arm: str) -> "ResolvedAblation":
        """Return the ablation of the setting that an arm is trained under."""
        return next(child for _, child in self.settings if arm in child.arms)

    @property
    def domains(self) -> list[str]:
        """Return every domain that is read, the general one first; all are evaluated."""
        names = [
            self.corpus.general,
            *self.recipe.seed_model.mix,
            *map(domain_of, self.recipe.expert.domains),
            *self.recipe.mixture.mix,
            *(name for data in self.data.values() for name in data.mix or ()),
            *(name for name in self.read if name in self.corpus.domains),
        ]
        return list(dict.fromkeys(names))

    @property
    def held_out_only(self) -> list[str]:
        """Return every domain that models are scored on and none is trained on."""
        return [*held_out_only(self.corpus), *self.recipe.transfer]


def joined(children: Sequence[ResolvedAblation]) -> ResolvedAblation:
    """Return the settings of one ablation as one, each with its setting's name on its arms.

    The one child of an ablation without settings is that ablation.
    """
    if len(children) == 1:
        return children[0]
    domains = tuple(dict.fromkeys(name for child in children for name in child.domains))
    named = tuple(replace(_named(child), read=domains) for child in children)
    first = children[0]
    if first.ablation.match.across:
        named = (named[0], *(replace(child, first=named[0]) for child in named[1:]))
    return replace(
        first,
        arms={arm: method for child in named for arm, method in child.arms.items()},
        data={arm: data for child in named for arm, data in child.data.items()},
        axes={arm: axes for child in named for arm, axes in child.axes.items()},
        bases={arm: base for child in named for arm, base in child.bases.items()},
        point=Point(),
        read=domains,
        children=named,
    )


def _named(child: ResolvedAblation) -> ResolvedAblation:
    name = child.point.name
    new = {arm: f"{arm}@{name}" for arm in child.arms}
    ablation = child.ablation.model_copy(
        update={
            "baseline": new[child.ablation.baseline],
            "arms": {new[arm]: raw for arm, raw in child.ablation.arms.items()},
        }
    )
    return replace(
        child,
        ablation=ablation,
        arms={new[arm]: _renamed(method, new) for arm, method in child.arms.items()},
        data={new[arm]: data for arm, data in child.data.items()},
        axes={new[arm]: {**axes, **child.point.axes} for arm, axes in child.axes.items()},
        bases={new[arm]: base for arm, base in child.bases.items()},
        setting=name,
    )


def _renamed(method: MethodSpec, new: dict[str, str]) -> MethodSpec:
    """Return a method that names another arm by its name under the setting."""
    if not isinstance(method, DenseMethod) or method.size_of is None:
        return method
    size_of = method.size_of.model_copy(update={"arm": new[method.size_of.arm]})
    return method.model_copy(update={"size_of": size_of})


def setting_problems(
    document: Document, children: Sequence[ResolvedAblation | None]
) -> Iterator[str]:
    """Check settings against each other; those with problems of their own are None."""
    seen: list[ResolvedAblation] = []
    for child in children:
        if child is None:
            continue
        loc = place_of(child.point)
        if any(other.corpus != child.corpus for other in seen):
            yield document.problem(
                loc,
                "must read the corpus of the other settings, for all are compared on the same "
                "held-out text. Give its scale the same corpus.",
            )
        for other in seen:
            if _parts(other) == _parts(child):
                text = f"must differ from setting {other.point.name!r}, got the same runs."
                yield document.problem(loc, f"{text} Remove one.")
                break
        seen.append(child)


def _parts(child: ResolvedAblation) -> tuple[Any, ...]:
    """Return what makes a setting's runs what they are: of a phase's tokens its steps."""
    scale, length = child.scale, child.model.max_seq_len
    phases = {
        name: size.model_copy(
            update={"tokens": max(round(size.tokens / (size.batch_sequences * length)), 1)}
        )
        for name, size in scale.phases
    }
    return child.recipe, scale.corpus, phases, scale.optimizer, child.model, child.arms, child.data
