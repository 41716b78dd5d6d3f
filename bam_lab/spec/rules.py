"""The cross-field rules: what single fields cannot know. Each returns problems, none raises."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations

from bam_lab.spec import data_rules, router_rules
from bam_lab.spec.ablation import AblationSpec
from bam_lab.spec.arms import says_data
from bam_lab.spec.budgets import FEWEST_STEPS
from bam_lab.spec.corpus import CorpusSpec
from bam_lab.spec.data import DataSpec
from bam_lab.spec.dense_rules import dense_problems
from bam_lab.spec.experts import experts_of, sources_of
from bam_lab.spec.measures import MEASURES
from bam_lab.spec.messages import nearest
from bam_lab.spec.methods import (
    AverageMethod,
    BTMMethod,
    DenseMethod,
    LoryToSparseMethod,
    MethodSpec,
    SegmentMoEMethod,
    SparseUpcyclingMethod,
)
from bam_lab.spec.misfits import misfits
from bam_lab.spec.model import ModelSpec
from bam_lab.spec.origin_rules import origin_problems
from bam_lab.spec.parts import is_known
from bam_lab.spec.reader import Document
from bam_lab.spec.recipe import SEED_MODEL, RecipeSpec
from bam_lab.spec.router_rules import router_problems
from bam_lab.spec.scale import ScaleSpec
from bam_lab.spec.segment_rules import segment_problems
from bam_lab.spec.segments import CopiesOrExperts

COLUMNS = (
    "heldout/*/perplexity",
    *(f"measure/{name}" for name, measure in MEASURES.items() if measure.source != "heldout"),
)
"""What a report can show of an arm."""


def model_problems(document: Document, model: ModelSpec) -> Iterator[str]:
    """Check that a model's sizes fit each other and its tokenizer."""
    if model.vocab_size < 257:
        yield document.problem(
            ("vocab_size",),
            f"must hold the 256 bytes and end-of-text, 257 or more, got {model.vocab_size}.",
        )
    if model.num_heads % model.num_kv_heads:
        yield document.problem(
            ("num_kv_heads",),
            f"must divide num_heads, got {model.num_kv_heads} and {model.num_heads}.",
        )
    if model.positions == "learned" and "rope_theta" in document.data:
        yield document.problem(
            ("rope_theta",),
            f"must not be given with `positions: learned`, got {model.rope_theta:g}: it has no "
            "effect. Remove it.",
        )
    if model.positions == "rope" and model.head_dim % 2:
        yield document.problem(
            ("head_dim",), f"must be even for rotary positions, got {model.head_dim}."
        )


def recipe_problems(document: Document, recipe: RecipeSpec) -> Iterator[str]:
    """Check that every expert is trained somewhere."""
    domains = recipe.expert.domains
    for index, domain in enumerate(domains):
        if domain in domains[:index]:
            yield document.problem(
                ("expert", "domains", index), f"must stand once, got {domain!r} again. Remove it."
            )
    for index, name in enumerate(recipe.mixture.experts):
        if name != SEED_MODEL and not is_known(name, domains):
            yield document.problem(
                ("mixture", "experts", index),
                f"must be {SEED_MODEL} or a domain of expert.domains, got {name!r}. "
                f"{nearest(name, (SEED_MODEL, *domains))}",
            )
    if len(recipe.mixture.experts) < 2:
        yield document.problem(("mixture", "experts"), "must hold at least two experts. Add one.")


def scale_problems(document: Document, scale: ScaleSpec, model: ModelSpec) -> Iterator[str]:
    """Check that every phase makes at least one step beyond its warm-up."""
    for name in ("seed_model", "expert", "mixture"):
        phase = getattr(scale.phases, name)
        steps = round(phase.tokens / (phase.batch_sequences * model.max_seq_len))
        decay = phase.decay_steps(steps)
        rest = f"warmup_steps {phase.warmup_steps}"
        rest += f" and the {decay} of the decay together" if decay else ""
        if steps <= phase.warmup_steps + (decay or 0):
            yield document.problem(
                ("phases", name, "tokens"),
                f"must give more optimizer steps than {rest}, got {steps} steps. Raise tokens or "
                "lower warmup_steps.",
            )
        if decay is None and "decay_share" in document.data["phases"][name]:
            yield document.problem(
                ("phases", name, "decay_share"),
                f"must not be given with `schedule: cosine`, got {phase.decay_share:g}: it has no "
                "effect. Remove it.",
            )


def length_problems(document: Document, scale: ScaleSpec, model: ModelSpec) -> Iterator[str]:
    """Check that arms train long enough to differ by what they are, not by how they start.

    A trial of the machinery says that it is one; the tests' own scale does.
    """
    size = scale.phases.mixture
    steps = round(size.tokens / (size.batch_sequences * model.max_seq_len))
    if steps < FEWEST_STEPS and not scale.trial:
        yield document.problem(
            ("phases", "mixture", "tokens"),
            f"must give {FEWEST_STEPS} optimizer steps or more, got {steps}: of fewer, hardly any "
            "are left after the warm-up. Raise tokens, or say `trial: true` in the scale if "
            "nothing is to be concluded from it.",
        )


def expert_row_problems(
    document: Document, spec: AblationSpec, arms: dict[str, MethodSpec], recipe: RecipeSpec
) -> Iterator[str]:
    """Check that there are dense experts where the report is to show them."""
    read = {name for arm in arms.values() for name in sources_of(arm, recipe.mixture.experts)}
    if spec.report.experts and arms and not read - {SEED_MODEL}:
        text = "must not be true where no arm reads a dense expert: it has no effect. Remove it."
        yield document.problem(("report", "experts"), text)


def arm_problems(
    document: Document, arms: dict[str, MethodSpec], recipe: RecipeSpec
) -> Iterator[str]:
    """Check routers against their experts, and settings without effect."""
    names = (SEED_MODEL, *recipe.expert.domains)
    for arm, method in arms.items():
        for key, text in dense_problems(method, arms, sources_of(method, recipe.mixture.experts)):
            yield document.problem(_place(document, arm, key), f"{text} (arm {arm!r})")
        if isinstance(method, DenseMethod):
            continue
        experts = experts_of(method, recipe.mixture.experts)
        for key, text in origin_problems(method, sources_of(method, recipe.mixture.experts)):
            yield document.problem(_place(document, arm, key), f"{text} (arm {arm!r})")
        named = () if isinstance(method, SparseUpcyclingMethod) else method.experts
        for index, name in enumerate(named):
            if name != SEED_MODEL and not is_known(name, recipe.expert.domains):
                yield document.problem(
                    (*_place(document, arm, "experts"), index),
                    f"must be {SEED_MODEL} or a domain of the recipe, got {name!r}. "
                    f"{nearest(name, names)}",
                )
        if isinstance(method, CopiesOrExperts):
            for key, text in segment_problems(method):
                yield document.problem(_place(document, arm, key), f"{text} (arm {arm!r})")
            if not isinstance(method, SegmentMoEMethod | LoryToSparseMethod):
                continue
        if isinstance(method, AverageMethod | BTMMethod):
            continue
        written = {key for part in _written(document, arm) for key in part}
        for keys, text in router_problems(method, len(experts), written):
            yield document.problem(_inside(document, arm, keys), f"{text} (arm {arm!r})")


def same_problems(
    document: Document,
    arms: dict[str, MethodSpec],
    data: Mapping[str, DataSpec],
    recipe: RecipeSpec,
    corpus: CorpusSpec,
    solved: Collection[str] = (),
) -> Iterator[str]:
    """Check that no two arms train the same way on the same text.

    What the match makes of the arms in `solved` shows later (`run/graph.py`).
    """
    nothing = DataSpec()
    runs = {
        arm: (
            _with_experts(method, recipe),
            data_rules.read(method, data.get(arm, nothing), recipe, corpus.general),
        )
        for arm, method in arms.items()
        if arm not in solved
        and (arm in data or not says_data(document, arm))  # else what it reads is wrong, and told
    }
    for one, other in combinations(runs, 2):
        if runs[one] == runs[other]:
            yield document.problem(
                ("arms", other), f"must differ from arm {one!r}, got the same run. Remove one."
            )


def _with_experts(method: MethodSpec, recipe: RecipeSpec) -> MethodSpec:
    """Return a method that names the recipe's experts where it takes them."""
    takes = "experts" in type(method).model_fields and getattr(method, "num_experts", None) is None
    named: tuple[str, ...] = getattr(method, "experts", ())
    if not takes or named:
        return method
    return method.model_copy(update={"experts": recipe.mixture.experts})


def shape_problems(
    document: Document,
    arms: dict[str, MethodSpec],
    model: ModelSpec,
    recipe_experts: Sequence[str],
) -> Iterator[str]:
    """Check every arm's settings against the model's shape."""
    for arm, method in arms.items():
        for key, text in misfits(method, model, len(experts_of(method, recipe_experts))):
            yield document.problem(_place(document, arm, key), text)


def batch_problems(
    document: Document, arms: dict[str, MethodSpec], scale: ScaleSpec
) -> Iterator[str]:
    """Check what an arm says of its batches against the scale's."""
    for arm, method in arms.items():
        for keys, text in router_rules.batch_problems(method, scale.phases.mixture.batch_sequences):
            yield document.problem(_inside(document, arm, keys), f"{text} (arm {arm!r})")


def _inside(document: Document, arm: str, keys: tuple[str, ...]) -> tuple[str, ...]:
    return (*_place(document, arm, keys[0]), *keys[1:])


def _written(document: Document, arm: str) -> tuple[dict[str, object], dict[str, object]]:
    """Return what the file says of an arm: in the arm itself, and in `common`."""
    common = document.data.get("common")
    own = (document.data.get("arms") or {}).get(arm, {})
    return own, common if isinstance(common, dict) else {}


def _place(document: Document, arm: str, key: str) -> tuple[str, ...]:
    """Return where a setting is written; the arm's own place where it is not."""
    own, common = _written(document, arm)
    return ("common", key) if key in common and key not in own else ("arms", arm, key)


def baseline_problems(document: Document, spec: AblationSpec) -> Iterator[str]:
    """Check that the baseline is an arm."""
    if spec.baseline not in spec.arms:
        yield document.problem(
            ("baseline",),
            f"must be an arm, got {spec.baseline!r}. {nearest(spec.baseline, spec.arms)}",
        )


def ablation_problems(document: Document, spec: AblationSpec, stem: str) -> Iterator[str]:
    """Check the names inside one ablation."""
    if spec.id != stem:
        yield document.problem(
            ("id",), f"must be the file's name {stem!r}, got {spec.id!r}. Rename one of the two."
        )
    for index, column in enumerate(spec.report.columns):
        if column not in COLUMNS:
            text = f"must be heldout/*/perplexity or measure/NAME, got {column!r}."
            yield document.problem(
                ("report", "columns", index), f"{text} {nearest(column, COLUMNS)}"
            )
    for loc, names in (
        (("report", "columns"), spec.report.columns),
        (("claims",), spec.claims),
        (("answers",), spec.answers),
        (("aliases",), spec.aliases),
    ):
        for index, name in enumerate(names):
            if name in names[:index]:
                yield document.problem(
                    (*loc, index), f"must stand once, got {name!r} again. Remove it."
                )


def name_problems(
    document: Document,
    spec: AblationSpec,
    claims: Collection[str],
    questions: Collection[str],
    ids: Collection[str],
) -> Iterator[str]:
    """Check the claims and the questions that an ablation names, and its own other names."""
    for index, alias in enumerate(spec.aliases):
        if alias in ids or alias == spec.id:
            yield document.problem(
                ("aliases", index),
                f"must be no ablation's id, got {alias!r}: it would always mean that one. "
                "Remove it.",
            )
    for index, claim in enumerate(spec.claims):
        if claim not in claims:
            yield document.problem(
                ("claims", index),
                f"must be an id of ablations/claims.yaml, got {claim!r}. {nearest(claim, claims)}",
            )
    for index, answer in enumerate(spec.answers):
        if answer not in questions:
            yield document.problem(
                ("answers", index),
                f"must be a question of ablations/answers.yaml, A1 to D3, got {answer!r}.",
            )
