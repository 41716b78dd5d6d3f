"""Do the same thing to several tasks on all cores."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar, TypeVarTuple

from bam_lab.record.processes import end_with_parent

Task = TypeVarTuple("Task")
Result = TypeVar("Result")


def each(
    function: Callable[[*Task], Result], tasks: Sequence[tuple[*Task]], workers: int | None = None
) -> Iterator[tuple[tuple[*Task], Result]]:
    """Yield (task, result) as they are done, in any order.

    Args:
        function: of a module, with arguments and results that can be pickled.
        tasks: one tuple of arguments each; put long ones first.
        workers: processes; by default one a core. With one, nothing is started.
    """
    processes = min(workers or os.cpu_count() or 1, len(tasks))
    if processes == 1:
        for task in tasks:
            yield task, function(*task)
        return
    # Spawned, not forked: the caller may hold threads. A killed caller would leave them waiting.
    with ProcessPoolExecutor(
        processes, multiprocessing.get_context("spawn"), end_with_parent, (os.getpid(),)
    ) as executor:
        futures = {executor.submit(function, *task): task for task in tasks}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            executor.shutdown(cancel_futures=True)
