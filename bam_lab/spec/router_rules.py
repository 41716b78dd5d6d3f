"""What makes no sense in an arm's routers and router losses, or would have no effect there."""

from collections.abc import Collection, Iterator

from bam_lab.spec.experts import hash_router, relu_router
from bam_lab.spec.methods import MethodSpec
from bam_lab.spec.routers import (
    BalanceLoss,
    ExpertChoiceRouter,
    HashRouter,
    ReLURouter,
    RouterSpec,
    SampleRouter,
    TopKRouter,
    chooses_all,
    is_balanced,
)

Problem = tuple[tuple[str, ...], str]


def router_problems(
    method: MethodSpec, num_experts: int, written: Collection[str]
) -> Iterator[Problem]:
    """Yield each key of an arm that is wrong, and what must hold.

    Args:
        method: one with an `ffn_router`.
        num_experts: experts of the mixture.
        written: keys that the user wrote: a default that has no effect is nobody's mistake.
    """
    for kind in ("ffn", "attention"):
        key = f"{kind}_router"
        router: RouterSpec | None = getattr(method, key, None)
        if router is None:
            continue
        yield from (((key, *keys), text) for keys, text in alone(router, num_experts))
        loss_key = "balance_loss" if kind == "ffn" else "attention_balance_loss"
        loss: BalanceLoss | None = getattr(method, loss_key, None)
        if loss is not None and loss_key in written:
            yield from (
                ((loss_key, *keys), text) for keys, text in _loss(loss, router, num_experts)
            )
    z_loss = "z_loss" in written and getattr(method, "z_loss", None)
    if z_loss and relu_router(method) is not None:
        yield ("z_loss",), "must be 0 with score: relu, no softmax: it has no effect. Set 0."
    if hash_router(method) is not None:
        yield from _beside_a_hash(method, written)


def alone(router: RouterSpec, num_experts: int) -> Iterator[Problem]:
    """Yield what is wrong in one router over `num_experts` experts, whatever stands beside it."""
    match router:
        case TopKRouter():
            yield from _top_k(router, num_experts)
        case SampleRouter() if router.min_temperature >= 1:
            yield (
                ("min_temperature",),
                f"must be below 1, where the annealing begins, got {router.min_temperature}: "
                "anneal_rate would have no effect.",
            )
        case ExpertChoiceRouter():
            if router.inference_top_k > num_experts:
                yield ("inference_top_k",), _too_many(num_experts, router.inference_top_k)
            if router.capacity_factor >= num_experts:
                yield (
                    ("capacity_factor",),
                    f"must be below the number of experts {num_experts}, got "
                    f"{router.capacity_factor:g}: every expert would take every token. Lower it, "
                    "or set select: all.",
                )
        case ReLURouter() if router.active_experts >= num_experts:
            yield (
                ("active_experts",),
                f"must be below the number of experts {num_experts}, got {router.active_experts}: "
                "no gate would have to close. Lower it, or set score: softmax.",
            )
        case HashRouter(kind="balanced") if router.table_seed:
            yield ("table_seed",), "must not be given with kind: balanced, which draws nothing."
        case _:
            return


def _top_k(router: TopKRouter, num_experts: int) -> Iterator[Problem]:
    if router.top_k > num_experts:
        yield ("top_k",), _too_many(num_experts, router.top_k)
    if router.top_k == 1 and router.renormalize:
        yield (
            ("renormalize",),
            "must be false with top_k 1, got true: the gate would be the constant 1 and the "
            "router would get no gradient.",
        )
    if router.capacity_factor is not None and router.capacity_factor >= num_experts:
        yield (
            ("capacity_factor",),
            f"must be below the number of experts {num_experts}, got {router.capacity_factor:g}: "
            "nothing could be dropped and the limit has no effect. Lower it or remove it.",
        )

    if router.bias_rate is not None and router.top_k >= num_experts:
        yield (
            ("bias_rate",),
            "must not be given where every token goes to every expert: no effect. Remove it.",
        )


def _too_many(num_experts: int, wanted: int) -> str:
    return f"must be at most the number of experts {num_experts}, got {wanted}. Lower it."


def _loss(loss: BalanceLoss, router: RouterSpec, num_experts: int) -> Iterator[Problem]:
    if not is_balanced(router):
        match router:
            case HashRouter():
                why = "a hash has no router"
            case ReLURouter():
                why = "gates have their own load-weighted L1 loss"
            case _:
                why = "experts choose"
        yield (), f"must be null where {why}, got {loss.form}: it has no effect. Set null."
    elif loss.form == "tokens" and chooses_all(router, num_experts):
        yield (
            (),
            "must not be `tokens` where every token goes to every expert: the share of tokens is "
            "constant and the loss has no effect.",
        )
    if (loss.over == "micro_batch") != (loss.micro_batch_sequences is not None):
        yield (
            ("micro_batch_sequences",),
            "must be given with over: micro_batch, and only there, got "
            f"{loss.micro_batch_sequences} with {loss.over}.",
        )
    elif loss.micro_batch_sequences == 1:
        yield ("micro_batch_sequences",), "must be 2 or more, got 1. Set over: sequence."


def _beside_a_hash(method: MethodSpec, written: Collection[str]) -> Iterator[Problem]:
    router = hash_router(method)
    if "z_loss" in written and getattr(method, "z_loss", None):
        yield ("z_loss",), "must be 0 where a hash routes: it has no effect. Set 0."
    if "router_init_std" in written and not hasattr(method, "attention_router"):
        yield ("router_init_std",), "must not be given where a hash routes: it has no effect."
    learned = router is not None and router.kind in ("clustered", "dispersed")
    if learned and getattr(method, "start", "seed_model") == "scratch":
        yield (
            ("ffn_router", "kind"),
            "must be random or balanced from scratch: random embeddings have no clusters.",
        )


def batch_problems(method: MethodSpec, batch_sequences: int) -> Iterator[Problem]:
    """Yield each balance loss whose micro-batches do not divide the mixture phase's batch."""
    for key in ("balance_loss", "attention_balance_loss"):
        loss: BalanceLoss | None = getattr(method, key, None)
        rows = None if loss is None else loss.micro_batch_sequences
        if rows is not None and (batch_sequences % rows or rows >= batch_sequences):
            yield (
                (key, "micro_batch_sequences"),
                f"must divide batch_sequences {batch_sequences} of the mixture phase and be less, "
                f"got {rows}.",
            )
