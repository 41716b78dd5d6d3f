"""Turn the knobs of arms until their size at inference is the baseline's.

All combinations of an arm's knobs are candidates. Of those within the tolerance the one is taken
whose total parameters are nearest to the baseline's too: BTX has BAM's active parameters with three
experts a token whatever the number of experts, and BAM's total with six (arXiv:2408.08274 Table 5).
Where none is within it, the nearest is taken if `match.unmatched` says why that may be.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, log

from bam_lab.cost.flops import per_token
from bam_lab.cost.match.budget import TOLERANCE
from bam_lab.cost.match.lineage import mixed, num_experts
from bam_lab.cost.match.measured import Model, model_of
from bam_lab.cost.params import count
from bam_lab.cost.sizes import sized
from bam_lab.errors import SpecError
from bam_lab.spec.knobs import Size, fits, lacks, span, turn, value_of
from bam_lab.spec.match_rules import SIZES
from bam_lab.spec.methods import MethodSpec
from bam_lab.spec.resolved import ResolvedAblation

ORDER: tuple[Size, ...] = ("num_experts", "top_k", "ffn_dim")
CANDIDATES = 12
"""Most models that are timed for one arm."""
APART = 0.05
"""How far the FLOPs of timed models are apart, as long as there are enough that are."""
SPREAD = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)
"""FLOPs over the baseline's up to which, and widths for which, models are timed."""
MOST_TOTAL = 4.0
"""Add no more experts than make the total parameters so many times the baseline's."""


@dataclass(frozen=True)
class Candidate:
    """Hold one combination of an arm's knobs.

    Attributes:
        ratio: the matched quantity over the baseline's.
        total_ratio: total parameters over the baseline's.
    """

    method: MethodSpec
    ratio: float
    total_ratio: float

    @property
    def off(self) -> float:
        """How far the matched quantity is from the baseline's, as a share of it."""
        return abs(self.ratio - 1)

    @property
    def rank(self) -> tuple[float, float, float]:
        """The order of preference, least first."""
        within = self.off <= TOLERANCE
        return (0.0, abs(self.total_ratio - 1), self.off) if within else (self.off, 0.0, 0.0)


def quantity(resolved: ResolvedAblation, method: MethodSpec) -> float:
    """Return what a match of sizes makes equal, of a model of one arm.

    Of decoding the measured seconds a token, or its FLOPs while nothing is measured.
    """
    model = model_of(resolved, method)
    match resolved.ablation.match.on:
        case "params-total":
            return count(resolved.model, method, model.num_experts).total
        case "params-active":
            return count(resolved.model, method, model.num_experts).active
        case "decode-throughput" if resolved.measured is not None:
            return resolved.measured[model.key]
        case "inference-flops" | "decode-throughput":
            seq_len = resolved.model.max_seq_len
            return per_token(resolved.model, method, model.num_experts, seq_len).model_forward
        case other:
            raise AssertionError(other)


@dataclass(frozen=True)
class _Search:
    """Hold what the candidates of an ablation are measured by: its baseline's numbers."""

    resolved: ResolvedAblation
    quantity: float
    total: int

    def candidate(self, method: MethodSpec) -> Candidate:
        return Candidate(
            method,
            quantity(self.resolved, method) / self.quantity,
            _total(self.resolved, method) / self.total,
        )


def _search(resolved: ResolvedAblation) -> _Search:
    base = resolved.arms[resolved.ablation.baseline]
    return _Search(resolved, quantity(resolved, base), _total(resolved, base))


def size_ratio(resolved: ResolvedAblation, method: MethodSpec) -> float:
    """Return an arm's matched quantity over the baseline's, as it is printed."""
    return printed(resolved, _search(resolved).candidate(method).ratio)


def printed(resolved: ResolvedAblation, ratio: float) -> float:
    """Return a ratio of what the mode is named for: of tokens a second, not seconds a token."""
    return 1 / ratio if resolved.ablation.match.on == "decode-throughput" else ratio


def turned(resolved: ResolvedAblation) -> ResolvedAblation:
    """Return the ablation with every knob of `match.by` turned; unchanged for other modes.

    Raises:
        SpecError: an arm cannot be made equal, with the nearest that there is.
    """
    match = resolved.ablation.match
    if match.on not in SIZES:
        return resolved
    arms, problems = dict(resolved.arms), list[str]()
    for arm in resolved.arms:
        if not (knobs := knobs_of(resolved, arm)):
            continue
        found = min(_offered(resolved, arm), key=lambda one: one.rank, default=None)
        if found is None:
            problems.append(_nothing(resolved, arm, knobs))
            continue
        guessed = match.on == "decode-throughput" and resolved.measured is None
        if found.off > TOLERANCE and not match.unmatched and not guessed:
            problems.append(_nearest(resolved, arm, knobs, found))
        arms[arm] = found.method
        if not guessed and (same := _same(resolved, arms, arm)):
            text = f"must differ from arms.{same}, got the same run once the match has turned its"
            problems.append(resolved.problem(("arms", arm), f"{text} knobs. Take one out."))
    if problems:
        raise SpecError(problems)
    return replace(resolved, arms=arms)


def _same(resolved: ResolvedAblation, arms: Mapping[str, MethodSpec], arm: str) -> str:
    """Return the arm that is the same run as `arm`; empty for none."""

    def run(name: str) -> tuple[str, tuple[str, ...], object]:
        models = mixed(resolved, arms[name])
        return Model(arms[name], len(models)).key, models, resolved.data.get(name)

    return next((other for other in arms if other != arm and run(other) == run(arm)), "")


def knobs_of(resolved: ResolvedAblation, arm: str) -> tuple[Size, ...]:
    """Return the knobs of size that the match may turn in an arm."""
    knobs = resolved.ablation.match.by.get(resolved.bases.get(arm, arm), ())
    return tuple(knob for knob in knobs if knob != "batch")


def decoded_models(resolved: ResolvedAblation) -> tuple[Model, ...]:
    """Return the models whose decoding is to be timed, each once.

    The arms as they are written, and for each that is solved at most `CANDIDATES` candidates, the
    nearest to the baseline in FLOPs first: of those within `APART` of each other the one nearest in
    total parameters, the others only where places are left.
    """
    guess = sized(replace(resolved, measured=None))
    found = [model_of(guess, method) for method in resolved.arms.values()]
    for arm in resolved.arms:
        if not knobs_of(guess, arm):
            continue
        kept, rest = list[Candidate](), list[Candidate]()
        near = [one for one in candidates(guess, arm, SPREAD) if one.ratio <= SPREAD[-1]]
        for one in sorted(near, key=lambda one: abs(one.total_ratio - 1)):
            alone = all(abs(one.ratio / other.ratio - 1) > APART for other in kept)
            (kept if alone else rest).append(one)
        kept.sort(key=lambda one: abs(log(one.ratio)))
        found += [model_of(guess, one.method) for one in (*kept, *rest)[:CANDIDATES]]
    return tuple({model.key: model for model in found}.values())


def _offered(resolved: ResolvedAblation, arm: str) -> Iterator[Candidate]:
    """Yield what may be chosen: all candidates, or those that were timed."""
    if resolved.ablation.match.on != "decode-throughput" or resolved.measured is None:
        yield from candidates(resolved, arm)
        return
    search = _search(resolved)
    for model in decoded_models(resolved):
        if model.key in resolved.measured and _is_turned(resolved, arm, model):
            yield search.candidate(model.method)


def _is_turned(resolved: ResolvedAblation, arm: str, model: Model) -> bool:
    """Return whether a model is the arm's with its knobs turned."""
    experts, mine = resolved.recipe.mixture.experts, resolved.arms[arm]
    if type(model.method) is not type(mine) or any(
        lacks(model.method, knob) for knob in knobs_of(resolved, arm)
    ):
        return False
    for knob in knobs_of(resolved, arm):
        mine = turn(mine, knob, value_of(model.method, knob, resolved.model, experts), experts)
    return model_of(resolved, mine).key == model.key


def candidates(
    resolved: ResolvedAblation, arm: str, goals: Sequence[float] = (1.0,)
) -> Iterator[Candidate]:
    """Yield every combination of an arm's knobs up to the first that exceeds the last goal.

    Of widths those on either side of each goal, which are ratios to the baseline's quantity.
    """
    turnable = knobs_of(resolved, arm)
    order: list[Size] = [knob for knob in ORDER if knob in turnable]
    yield from _turn(_search(resolved), resolved.arms[arm], order, goals)


def _turn(
    search: _Search, method: MethodSpec, knobs: Sequence[Size], goals: Sequence[float]
) -> Iterator[Candidate]:
    """Turn the first knob upwards, under each value the others; more of any is never less.

    So a value under which even the fewest of the others are too much is the last.
    """
    knob, *others = knobs
    experts = search.resolved.recipe.mixture.experts
    if knob == "ffn_dim":
        for goal in goals:
            yield from _widths(search, method, goal)
        return
    values = span(method, knob, experts)
    for value in values:
        made = turn(method, knob, value, experts)
        if value > values.start and _total(search.resolved, made) > MOST_TOTAL * search.total:
            return
        least = inf
        for one in _turn(search, made, others, goals) if others else _one(search, made):
            least = min(least, one.ratio)
            yield one
        if goals[-1] < least < inf:
            return


def _one(search: _Search, method: MethodSpec) -> Iterator[Candidate]:
    if fits(method, search.resolved.model, search.resolved.recipe.mixture.experts):
        yield search.candidate(method)


def _widths(search: _Search, method: MethodSpec, goal: float) -> Iterator[Candidate]:
    """Yield the two widths on either side of a ratio to the baseline's quantity."""
    experts = search.resolved.recipe.mixture.experts
    values = span(method, "ffn_dim", experts)
    low, high = 0, len(values) - 1
    while low < high:
        middle = (low + high) // 2
        if search.candidate(turn(method, "ffn_dim", values[middle], experts)).ratio < goal:
            low = middle + 1
        else:
            high = middle
    for index in (low - 1, low):
        if index >= 0:
            yield from _one(search, turn(method, "ffn_dim", values[index], experts))


def _total(resolved: ResolvedAblation, method: MethodSpec) -> int:
    return count(resolved.model, method, num_experts(resolved, method)).total


def _nothing(resolved: ResolvedAblation, arm: str, knobs: Sequence[Size]) -> str:
    return resolved.problem(
        ("match", "by", resolved.bases.get(arm, arm)),
        f"must have a solution, but no {' and '.join(knobs)} fits arm {arm}. Take other knobs.",
    )


def _nearest(resolved: ResolvedAblation, arm: str, knobs: Sequence[Size], found: Candidate) -> str:
    """Return the problem of an arm that cannot be made equal, with what comes nearest."""
    experts = resolved.recipe.mixture.experts
    values = (f"{knob} {value_of(found.method, knob, resolved.model, experts)}" for knob in knobs)
    got, thing = printed(resolved, found.ratio), resolved.ablation.match.on
    return resolved.problem(
        ("match", "by", resolved.bases.get(arm, arm)),
        f"must bring arm {arm} within {TOLERANCE:.1%} of the baseline's {thing}, got {got:.4f} of "
        f"it with {' and '.join(values)}, the nearest. Take other knobs, or say in match.unmatched "
        "why the nearest will do.",
    )
