"""The cross-field rules of the data axes: domains that can be read, settings without effect."""

from collections.abc import Collection, Iterator, Mapping

from bam_lab.spec.arms import DATA
from bam_lab.spec.branches import BRANCH_DATA
from bam_lab.spec.corpus import CorpusSpec, held_out_only
from bam_lab.spec.data import CHAIN_OF_A_POOL, DataSpec
from bam_lab.spec.experts import is_trained, sources_of
from bam_lab.spec.messages import Loc, nearest
from bam_lab.spec.methods import MethodSpec
from bam_lab.spec.parts import domain_of
from bam_lab.spec.reader import Document
from bam_lab.spec.recipe import SEED_MODEL, RecipeSpec, data_of


def domain_problems(document: Document, recipe: RecipeSpec, corpus: CorpusSpec) -> Iterator[str]:
    """Check that the corpus can train on every domain that the recipe names."""
    used: dict[Loc, str] = {("seed_model", "mix", name): name for name in recipe.seed_model.mix}
    domains = [domain_of(name) for name in recipe.expert.domains]
    used |= {("expert", "domains", i): name for i, name in enumerate(domains)}
    used |= {("mixture", "mix", name): name for name in recipe.mixture.mix}
    yield from _unreadable(document, used, corpus)
    yield from _transfer_problems(document, recipe, corpus, set(used.values()))
    effects = _effects(corpus.general, recipe.expert.domains, True, data_of(recipe))
    if recipe.expert.general_share > 0 and "general_share" not in effects:
        yield document.problem(
            ("expert", "general_share"),
            f"must be 0 where no domain but the general one, {corpus.general!r}, is branched: it "
            "would have no effect.",
        )
    if recipe.general_repeats is not None and "general_repeats" not in effects:
        yield document.problem(
            ("general_repeats",),
            f"must have an effect: no phase reads the general domain {corpus.general!r}. Remove "
            "it.",
        )


def data_problems(
    document: Document,
    arms: Mapping[str, MethodSpec],
    data: Mapping[str, DataSpec],
    recipe: RecipeSpec,
    corpus: CorpusSpec,
) -> Iterator[str]:
    """Check what arms read: domains that are there, and settings that have an effect.

    What `common` says must have an effect on one of the arms that take it from there.
    """
    taken: dict[str, list[bool]] = {}
    for arm, written in data.items():
        if arm not in arms:
            continue  # its method is wrong, and told
        whole, place = data_of(recipe, written), data_place(document, arm)
        used = {(*place, "mix", name): name for name in written.mix or ()}
        yield from _unreadable(document, used, corpus)
        if whole.general_repeats is not None and whole.order != "random":
            yield document.problem(place, f"is wrong: {CHAIN_OF_A_POOL} (arm {arm!r}).")
        effects = effects_of(arms[arm], whole, recipe, corpus.general)
        for name in _given(written):
            if place[0] == "common":
                taken.setdefault(name, []).append(name in effects)
            elif name not in effects:
                yield document.problem((*place, name), _no_effect(name, corpus.general, arm))
    for name, found in taken.items():
        if not any(found):
            text = _no_effect(name, corpus.general, "")
            yield document.problem(("common", DATA, name), text)


def read(
    method: MethodSpec, written: DataSpec, recipe: RecipeSpec, general: str
) -> tuple[object, ...]:
    """Return all that an arm reads, without the settings that have no effect on it."""
    whole = data_of(recipe, written)
    effects = effects_of(method, whole, recipe, general)
    mix = sorted((whole.mix or {}).items()) if "mix" in effects else None
    return mix, *(getattr(whole, name) if name in effects else None for name in BRANCH_DATA)


def effects_of(
    method: MethodSpec, whole: DataSpec, recipe: RecipeSpec, general: str
) -> frozenset[str]:
    """Return which settings of its data change what an arm reads."""
    names = [n for n in sources_of(method, recipe.mixture.experts) if n != SEED_MODEL]
    return _effects(general, names, is_trained(method), whole)


def _effects(
    general: str, branches: Collection[str], trained: bool, whole: DataSpec
) -> frozenset[str]:
    others = any(domain_of(name) != general for name in branches)
    reads_general = (
        (others and bool(whole.general_share))
        or any(domain_of(name) == general for name in branches)
        or (trained and (whole.mix or {}).get(general, 0) > 0)
    )
    found = {
        "general_share": others,
        "general_repeats": reads_general,
        "mix": trained,
        "order": trained or bool(branches),
    }
    return frozenset(name for name, has in found.items() if has)


def data_place(document: Document, arm: str) -> Loc:
    """Return where an arm's data is written."""
    own = (document.data.get("arms") or {}).get(arm)
    inherits = isinstance(own, dict) and DATA not in own and DATA in _common(document)
    return ("common", DATA) if inherits else ("arms", arm, DATA)


def _common(document: Document) -> Collection[str]:
    found = document.data.get("common")
    return found if isinstance(found, dict) else ()


def _given(data: DataSpec) -> list[str]:
    return [name for name, value in dict(data).items() if value is not None]


def _no_effect(name: str, general: str, arm: str) -> str:
    of = {
        "general_share": f"no branch but of the general domain {general!r} is read",
        "general_repeats": f"no phase reads the general domain {general!r}",
        "mix": "there is no mixture phase",
        "order": "nothing is trained",
    }
    return f"must have an effect: {of[name]}{f' by arm {arm!r}' if arm else ''}. Remove it."


def _unreadable(document: Document, used: Mapping[Loc, str], corpus: CorpusSpec) -> Iterator[str]:
    whole = held_out_only(corpus)
    known = [name for name in corpus.domains if name not in whole]
    for loc, name in used.items():
        if name in whole:
            yield document.problem(
                loc,
                f"must be a domain that is trained on, got {name!r}, which the corpus holds out as "
                f"a whole. Known: {', '.join(known)}.",
            )
        elif name not in known:
            yield document.problem(
                loc, f"must be a domain of the corpus, got {name!r}. {nearest(name, known)}"
            )


def _transfer_problems(
    document: Document, recipe: RecipeSpec, corpus: CorpusSpec, read: Collection[str]
) -> Iterator[str]:
    used: dict[Loc, str] = {("transfer", i): name for i, name in enumerate(recipe.transfer)}
    yield from _unreadable(document, used, corpus)
    for loc, name in used.items():
        if name in read or name == corpus.general:
            yield document.problem(
                loc,
                f"must be a domain that no stage reads, got {name!r}. Take it out of the mixes, or "
                "out of here.",
            )
