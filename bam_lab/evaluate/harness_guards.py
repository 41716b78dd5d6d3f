"""What stands around lm-evaluation-harness's work: closed templates, silence, seeds."""

import io
import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

import numpy as np

from bam_lab.errors import InputError

_PLAIN = (str, list, dict, tuple, int, float, type(None))
_METHOD: Any = type("".strip)
_SHUT = ("format", "format_map")  # they reach attributes by themselves


def guarded(environment: Any) -> Any:
    """Return a Jinja environment whose templates reach plain data, its methods, and nothing else.

    An attribute of anything else is refused, so that no function but Jinja's own filters and
    methods of texts, lists and numbers can be reached, called or handed on. (Jinja's sandbox names
    what is forbidden; here is named what is allowed, which is all that tasks need.)
    """

    class Guarded(type(environment)):  # type: ignore[misc]
        sandboxed = True  # calls then go through `call`
        intercepted_binops = intercepted_unops = frozenset[str]()

        def getattr(self, owner: Any, name: str) -> Any:
            if isinstance(owner, dict) and name.startswith("_") and name in owner:
                return owner[name]
            _check(owner, name, self.undefined)
            return super().getattr(owner, name)

        def getitem(self, owner: Any, name: Any) -> Any:
            if isinstance(owner, dict) and name in owner:
                return owner[name]
            _check(owner, name, self.undefined)
            return super().getitem(owner, name)

        def call(self, context: Any, called: Any, *args: Any, **named: Any) -> Any:
            if called is not range and not (
                type(called) is _METHOD and isinstance(called.__self__, _PLAIN)
            ):
                raise _refused(called)
            return context.call(called, *args, **named)

    # `attr` looks past `getattr` in some versions of Jinja.
    shut = Guarded(undefined=environment.undefined, keep_trailing_newline=True)
    shut.filters = {k: v for k, v in environment.filters.items() if k != "attr"}
    return shut


def _check(owner: Any, name: Any, undefined: type) -> None:
    """Refuse what is no part of plain data; a `loop` tells its own numbers."""
    if not isinstance(owner, (*_PLAIN, undefined)) and type(owner).__name__ != "LoopContext":
        raise _refused(owner)
    if isinstance(name, str) and (name.startswith("_") or name in _SHUT):
        raise _refused(name)


def _refused(what: Any) -> InputError:
    return InputError(
        f"a template must be of texts, lists and numbers, and their methods, got {what!r}. Allow "
        "code if you trust where the task comes from."
    )


class _Listener(logging.Handler):
    """Keep what is logged."""

    def __init__(self, heard: list[str]):
        super().__init__(logging.WARNING)
        self.heard = heard

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append(record.getMessage())


@contextmanager
def quiet() -> Iterator[list[str]]:
    """Keep lm-eval from writing to the terminal; give what it warns of."""
    heard: list[str] = []
    logger, listener = logging.getLogger("lm_eval"), _Listener(heard)
    kept = logger.propagate
    logger.addHandler(listener)
    logger.propagate = False
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            yield heard
    finally:
        logger.propagate = kept
        logger.removeHandler(listener)


@contextmanager
def seeded() -> Iterator[None]:
    """Seed the global generators as lm-eval does, for tasks that draw from them, and put back."""
    kept, numpy = random.getstate(), np.random.get_state()
    random.seed(0)
    np.random.seed(1234)
    try:
        yield
    finally:
        random.setstate(kept)
        np.random.set_state(numpy)
