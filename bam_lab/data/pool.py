"""Do the same thing to several tasks on all cores."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from types import TracebackType
from typing import Self, TypeVar, TypeVarTuple

from bam_lab.record.processes import end_with_parent

Task = TypeVarTuple("Task")
Result = TypeVar("Result")


class Pool:
    """Keep processes for several rounds of tasks; they start when they are first needed."""

    def __init__(self, workers: int | None = None):
        """Use `workers` processes; by default one a core. With one, nothing is started."""
        self._workers = workers or os.cpu_count() or 1
        self._executor: ProcessPoolExecutor | None = None

    def each(
        self, function: Callable[[*Task], Result], tasks: Sequence[tuple[*Task]]
    ) -> Iterator[tuple[tuple[*Task], Result]]:
        """Yield (task, result) as they are done, in any order.

        Args:
            function: of a module, with arguments and results that can be pickled.
            tasks: one tuple of arguments each; put long ones first.
        """
        if self._workers == 1 or len(tasks) < 2:
            for task in tasks:
                yield task, function(*task)
            return
        if self._executor is None:
            # Spawned, not forked: the caller may hold threads. A killed caller would leave them
            # waiting.
            self._executor = ProcessPoolExecutor(
                self._workers,
                multiprocessing.get_context("spawn"),
                end_with_parent,
                (os.getpid(),),
            )
        futures = {self._executor.submit(function, *task): task for task in tasks}
        try:
            for future in as_completed(futures):
                yield futures.pop(future), future.result()
        finally:
            for future in futures:
                future.cancel()

    def __enter__(self) -> Self:
        """Return the pool."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Wait for tasks that run, drop those that do not, end the processes."""
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)


def each(
    function: Callable[[*Task], Result], tasks: Sequence[tuple[*Task]], workers: int | None = None
) -> Iterator[tuple[tuple[*Task], Result]]:
    """Yield (task, result) of one round of tasks; see `Pool`."""
    with Pool(min(workers or os.cpu_count() or 1, max(len(tasks), 1))) as pool:
        yield from pool.each(function, tasks)
