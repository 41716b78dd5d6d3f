"""Share work out over the processes of `torch.distributed`; alone where there is one.

Every process asks for the same list and gets all its results, so that whatever comes before and
after (few-shot examples, orders, averages) is the same everywhere, and equal to what one process
gives. A process that fails makes all fail, with the same message: nobody waits for it.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from bam_lab.errors import BamLabError, StageError

Item = TypeVar("Item")
Result = TypeVar("Result")


def shared(
    items: Sequence[Item], work: Callable[[Sequence[Item]], Sequence[Result]]
) -> list[Result]:
    """Return the result of every item, in order; process r of W works on items r, r + W, ...

    All processes must call it, with the same items. Results travel pickled between them.

    Raises:
        BamLabError: as `work` does here.
        StageError: another process failed so, or has too little memory.
        RuntimeError: another process met a defect.
    """
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return list(work(items))
    rank, world = dist.get_rank(), dist.get_world_size()
    done: Sequence[Result] = ()
    error: Exception | None = None
    try:
        done = work(items[rank::world])
    except Exception as problem:  # the others wait for this process: they are told first
        error = problem
    found: list[Any] = [None] * world
    dist.all_gather_object(found, (list(done), _told(error, rank)))
    if error is not None:
        raise error
    for _, told in found:
        if told is not None:
            message, defect = told
            raise RuntimeError(message) if defect else StageError(message)
    results: list[Any] = [None] * len(items)
    for other, (part, _) in enumerate(found):
        results[other::world] = part
    return results


def _told(error: Exception | None, rank: int) -> tuple[str, bool] | None:
    """Return what the others are told, and whether it is a defect, which stops them too."""
    if error is None or isinstance(error, BamLabError):
        return None if error is None else (str(error), False)
    message = f"process {rank} must finish its share, got {error!r}. See what it wrote."
    return message, not isinstance(error, torch.OutOfMemoryError)
