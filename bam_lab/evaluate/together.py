"""Parallel blocks whose attention and FFN are computed at the same time, for timing (claim C8).

A parallel block's halves read the same vector and wait for nothing of each other; `block.py` still
runs one after the other, which is as fast where one fills the device. Here the FFN has a CUDA
stream, or a thread, of its own. The arithmetic is the same, and so are the results, to the bit
where kernels add up in the same order.

`part_seconds` says what the halves take by themselves, from which follows the most that computing
them together can save.

Shapes: B batch, T tokens, D dim.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bam_lab.errors import SpecError
from bam_lab.model.block import Block, LayerRouting
from bam_lab.model.context import Context
from bam_lab.model.layers import norm, to_compute
from bam_lab.model.transformer import Transformer

Halves = tuple[tuple[Tensor, Any], tuple[Tensor, Any]]


class TogetherBlock(nn.Module):
    """Compute a parallel block, both halves at the same time."""

    def __init__(self, block: Block, pool: ThreadPoolExecutor):
        """Take the block's weights as they are; `pool` has a thread for FFNs on a CPU."""
        super().__init__()
        assert block.parallel
        self.block, self.pool = block, pool

    def forward(
        self, x: Float[Tensor, "B T D"], context: Context
    ) -> tuple[Float[Tensor, "B T D"], LayerRouting]:
        """Add this layer's contribution to the residual stream `x`."""
        own = self.block
        normed = norm(x, own.norm, own.spec)
        compute = to_compute(normed)
        run = _on_streams if x.is_cuda else self._in_threads
        (attended, attention), (fed, ffn) = run(
            lambda: own.attention(compute, normed, context),
            lambda: own.ffn(compute, normed, context),
        )
        return x + attended + fed, LayerRouting(attention, ffn)

    def _in_threads(self, first: Callable[[], Any], second: Callable[[], Any]) -> Halves:
        # Autocast and gradient modes are a thread's own.
        autocast = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        gradients = torch.is_grad_enabled()

        def work() -> Any:
            with (
                torch.set_grad_enabled(gradients),
                torch.autocast("cpu", autocast[1], enabled=autocast[0]),
            ):
                return second()

        later = self.pool.submit(work)
        return first(), later.result()


@contextmanager
def together(model: Transformer) -> Iterator[Transformer]:
    """Let a model's blocks compute their halves at the same time, while the context lasts.

    Raises:
        SpecError: its blocks are serial: an FFN then reads what attention has added.
    """
    if model.spec.block != "parallel":
        raise SpecError(
            f"block must be parallel to compute attention and FFN at the same time, got "
            f"{model.spec.block}. Time it as it is."
        )
    blocks = model.layers
    with ThreadPoolExecutor(1) as pool:
        model.layers = nn.ModuleList(TogetherBlock(block, pool) for block in blocks)  # type: ignore[arg-type]
        try:
            yield model
        finally:
            model.layers = blocks


def _on_streams(first: Callable[[], Any], second: Callable[[], Any]) -> Halves:
    current = torch.cuda.current_stream()
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(current)
    with torch.cuda.stream(side):
        later = second()
    now = first()
    current.wait_stream(side)
    later[0].record_stream(current)
    return now, later


@dataclass
class PartSeconds:
    """Hold what the halves of each layer took in one work, one after the other.

    Attributes:
        attention, ffn: seconds of each layer.
        total: of the whole work.
    """

    attention: list[float] = field(default_factory=list)
    ffn: list[float] = field(default_factory=list)
    total: float = 0.0

    @property
    def together(self) -> float:
        """Return the least that the work could take with both halves at the same time."""
        pairs = zip(self.attention, self.ffn, strict=True)
        return self.total - sum(min(pair) for pair in pairs)


def part_seconds(
    layers: nn.ModuleList, work: Callable[[], object], clock: Callable[[], float]
) -> PartSeconds:
    """Time the attention and the FFN of each layer within some work.

    The clock is read around each half; on a GPU it waits for the device each time, so the total is
    more than the work's own.

    Args:
        layers: of a `Transformer`; each has `attention` and `ffn`.
        work: runs the model, once or several times.
        clock: as for `latency.measure`.
    """
    found = PartSeconds([0.0] * len(layers), [0.0] * len(layers))
    started: list[float] = []
    handles = []
    for index, layer in enumerate(layers):
        for name in ("attention", "ffn"):
            seconds: list[float] = getattr(found, name)

            def before(*_: Any) -> None:
                started.append(clock())

            def after(*_: Any, seconds: list[float] = seconds, index: int = index) -> None:
                seconds[index] += clock() - started.pop()

            half: nn.Module = getattr(layer, name)
            handles.append(half.register_forward_pre_hook(before))
            handles.append(half.register_forward_hook(after))
    try:
        start = clock()
        work()
        found.total = clock() - start
    finally:
        for handle in handles:
            handle.remove()
    return found
