"""Count the FLOPs that really run, by tracing: the test oracle of `cost/flops.py`.

torch's counter silently gives 0 for CPU attention, its backward and the chunked cross-entropy;
their formulas stand here, and a product without any formula is an error. Elementwise work, softmax,
top-k, sorting and look-ups count 0, the optimizer is not run. What each path executes is written at
the top of its file.
"""

import re
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from bam_lab.model.context import Draw
from bam_lab.model.losses import next_token_loss, token_nats
from bam_lab.model.router_losses import router_losses, weigh
from bam_lab.model.transformer import Transformer

_PRODUCT = re.compile(r"(^|_)(mm|bmm|addmm|baddbmm|matmul|linear|dot|mv|conv\w*|attention)(_|$)")
_ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_ATTENTION_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def traced_flops(
    model: Transformer, tokens: Int[Tensor, "B T"], targets: Int[Tensor, "B T"], training: bool
) -> int:
    """Return the FLOPs of one training step (forward, loss, backward) or of one evaluation.

    The step is the first, its noise drawn from seed 0. A product that autocast would run in bf16
    counts the same in float32.

    Raises:
        NotImplementedError: a matrix product ran that has no formula.
    """

    def work() -> None:
        if training:
            output = model(tokens, Draw(0, torch.Generator(tokens.device).manual_seed(0)))
            loss = next_token_loss(output.hidden, model.lm_head_weight, targets)
            total = loss + weigh(router_losses(output, model.method), model.method, model.l1_weight)
            total.backward()  # type: ignore[no-untyped-call]
        else:
            with torch.no_grad():
                token_nats(model(tokens).hidden, model.lm_head_weight, targets)

    ran = counted_flops(work)
    model.zero_grad()
    return ran


def counted_flops(work: Callable[[], object]) -> int:
    """Return the FLOPs of whatever `work` does.

    Raises:
        NotImplementedError: a matrix product ran that has no formula.
    """
    counter, guard = FlopCounterMode(display=False, custom_mapping=_formulas()), _Guard()  # type: ignore[no-untyped-call]
    with counter, guard:
        work()
    return int(counter.get_total_flops())


def _formulas() -> dict[Any, Callable[..., int]]:
    # The backward: scores again, then the gradients of weights, values, queries and keys.
    return {
        _ATTENTION: lambda q, k, v, *rest, **options: _attention_flops(q, k, products=2),
        _ATTENTION_BACKWARD: lambda grad, q, k, v, *rest, **options: _attention_flops(q, k, 5),
        _chunked_cross_entropy(): _cross_entropy_flops,
        torch.ops.aten.addmm_: lambda out, a, b, **options: 2 * a[0] * a[1] * b[1],
    }


def _attention_flops(q: tuple[int, ...], k: tuple[int, ...], products: int) -> int:
    batch, heads, queries, head_dim = q
    return 2 * products * batch * heads * queries * k[2] * head_dim


def _chunked_cross_entropy() -> Any:
    """Return torch's op; it exists once its module was imported."""
    import torch.nn.modules.linear_cross_entropy

    return torch.ops.torch_nn._linear_cross_entropy_batch_chunked


def _cross_entropy_flops(
    hidden: tuple[int, ...],
    weight: tuple[int, ...],
    *rest: Any,
    **options: Any,
) -> int:
    """Count the logits, and each gradient that the op was asked to compute with them."""
    gradients = sum(bool(flag) for flag in rest[-3:-1])
    return 2 * (1 + gradients) * hidden[0] * hidden[1] * weight[0]


class _Guard(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuse matrix products that the counter would count as 0."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        packet = func.overloadpacket
        known = packet in flop_registry or packet in _formulas()
        name = func.name().split("::")[1].split(".")[0]
        if not known and _PRODUCT.search(name):
            raise NotImplementedError(f"{func.name()} has no FLOP formula; add one here")
        return func(*args, **(kwargs or {}))
