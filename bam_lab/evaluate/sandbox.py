"""Run Python code that a model has written, shut in: no network, no files but its own, limits.

    outcome = run("assert 1 + 1 == 2")
    outcome.passed, outcome.why, outcome.safe

On Linux the code runs in namespaces of its own (`sandbox_inside.py` makes them): no network at all,
no process to be seen but its own, a file system that holds Python and nothing of the user's, and an
empty folder in memory to write to. No tool and no root is needed where the kernel lets users make
namespaces. Where it does not, and on other systems, `run` refuses, unless told `allow_unsafe`: the
code then has limits of CPU, memory, processes (not of root's) and files, but reaches network and
files as the user does, and a process that leaves its group may outlive it. Its outcome says that.

A program has passed when it ran to its end: a word is then written to a pipe of ours. So
`sys.exit(0)` before its tests is no pass.
"""

import contextlib
import json
import os
import secrets
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import psutil

from bam_lab.errors import InputError
from bam_lab.evaluate.sandbox_inside import STARTED

_INSIDE = Path(__file__).with_name("sandbox_inside.py")
_START_SECONDS = 30.0  # of two interpreters, on a machine that is busy
_WHY_CHARACTERS = 200


@dataclass(frozen=True)
class Limits:
    """Hold what the code may use; more of anything ends it.

    Attributes:
        seconds: wall time from when it starts.
        cpu_seconds: of each process.
        memory_bytes: address space of each process.
        processes: of it and its children together, threads counted.
        file_bytes: of one file, and (where it is shut in) of all files together.
        output_bytes: printed to both streams together.
    """

    seconds: float = 5.0
    cpu_seconds: int = 5
    memory_bytes: int = 512_000_000
    processes: int = 4
    file_bytes: int = 16_000_000
    output_bytes: int = 64_000


@dataclass(frozen=True)
class Outcome:
    """Say what became of a program.

    Attributes:
        why: `ran to its end`, or what ended it before, in one line.
        safe: whether it was shut in.
        seconds: from its start.
    """

    passed: bool
    why: str
    safe: bool
    seconds: float


def run(program: str, limits: Limits | None = None, *, allow_unsafe: bool = False) -> Outcome:
    """Run a program with Python's standard library, and say whether it came to its end.

    Args:
        program: its text.
        limits: None for the defaults.
        allow_unsafe: run it even where it cannot be shut in.

    Raises:
        InputError: it cannot be shut in here, and that is not allowed.
    """
    limits = limits or Limits()
    found = _run(program, limits, safe=True)
    if isinstance(found, Outcome):
        return found
    if not allow_unsafe:
        raise InputError(
            "code that a model writes must run without network and files of yours, and this "
            f"machine cannot shut it in: {found}. Run it on Linux where users may make "
            "namespaces, or leave its tasks out. To allow it unsafely is to trust it with all "
            "that you may do."
        )
    unsafe = _run(program, replace(limits, processes=limits.processes + _processes()), safe=False)
    assert isinstance(unsafe, Outcome), unsafe
    return unsafe


def why_unsafe() -> str | None:
    """Return why code cannot be shut in on this machine; None where it can."""
    found = _run("", Limits(), safe=True)
    return None if isinstance(found, Outcome) else found


@dataclass
class _Heard:
    """Hold what came of a program.

    Attributes:
        began, ended: on the clock; None before.
        stopped: why it was not waited for; empty where it ended by itself.
    """

    output: bytearray = field(default_factory=bytearray)
    result: bytearray = field(default_factory=bytearray)
    began: float | None = None
    ended: float = 0.0
    stopped: str = ""

    def last_line(self) -> str:
        """Return the last line that was printed: of an error its name and words."""
        lines = self.output.decode("utf-8", "replace").split("\n")
        said = [" ".join(line.split()) for line in lines if line.strip()]
        printable = "".join(c if c.isprintable() else "?" for c in said[-1]) if said else ""
        return printable[:_WHY_CHARACTERS]


def _run(program: str, limits: Limits, *, safe: bool) -> Outcome | str:
    """Return what became of a program, or why it could not be shut in."""
    if safe and sys.platform != "linux":
        return f"namespaces are Linux's, and this is {sys.platform}"
    word = secrets.token_hex(16)
    with (
        tempfile.TemporaryDirectory(prefix="bam-lab-", ignore_cleanup_errors=True) as folder,
        _pipe() as (result, inner),
    ):
        order = {
            "safe": safe,
            "folder": os.path.realpath(folder),
            "program": program,
            "result": inner.fileno(),
            "word": word,
            "limits": asdict(limits),
        }
        loader = {k: v for k, v in os.environ.items() if k == "LD_LIBRARY_PATH"}
        with subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", str(_INSIDE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=loader,
            pass_fds=(inner.fileno(),),
            start_new_session=True,
        ) as process:
            inner.close()
            try:
                assert process.stdin is not None
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write(json.dumps(order).encode())
                    process.stdin.close()
                heard = _listen(process, result, limits, len(STARTED) + len(word))
            finally:
                _end(process)
    if safe and heard.began is None:
        return heard.last_line() or heard.stopped or f"exit status {process.returncode}"
    assert heard.began is not None, heard
    passed = heard.result == STARTED + word.encode()
    why = "ran to its end" if passed else _why(heard, process.returncode, limits)
    return Outcome(passed, why, safe, max(heard.ended - heard.began, 0.0))


@contextlib.contextmanager
def _pipe() -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    read, write = os.pipe()
    with (
        os.fdopen(read, "rb", buffering=0) as reader,
        os.fdopen(write, "wb", buffering=0) as writer,
    ):
        yield reader, writer


def _listen(process: Any, result: IO[bytes], limits: Limits, whole: int) -> _Heard:
    """Read what the program prints, and `whole` bytes of its result, up to an end or a limit."""
    heard = _Heard()
    begun = time.monotonic()
    with selectors.DefaultSelector() as waiting:
        waiting.register(process.stdout, selectors.EVENT_READ, heard.output)
        waiting.register(result, selectors.EVENT_READ, heard.result)
        while waiting.get_map() and not heard.stopped:
            if heard.began is None:
                limit, told = begun + _START_SECONDS, f"did not start within {_START_SECONDS:g} s"
            else:
                limit, told = heard.began + limits.seconds, f"ran longer than {limits.seconds:g} s"
            events = waiting.select(max(limit - time.monotonic(), 0))
            if not events and time.monotonic() >= limit:
                heard.stopped = told
            for key, _ in events:
                part = os.read(key.fd, 65536)
                key.data.extend(part)
                if not part:
                    waiting.unregister(key.fileobj)
            if heard.result and heard.began is None:
                heard.began = time.monotonic()
            if len(heard.result) >= whole:
                break
            if len(heard.output) > limits.output_bytes:
                heard.stopped = f"printed more than {limits.output_bytes:,} bytes"
    heard.ended = time.monotonic()
    return heard


def _end(process: Any) -> None:
    """End a process with all that it has started, by their numbers."""
    with contextlib.suppress(psutil.NoSuchProcess):
        # The first process inside may have left the group; with it end all in its namespace.
        for child in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _why(heard: _Heard, status: int, limits: Limits) -> str:
    """Return why a program did not run to its end."""
    if heard.stopped:
        return heard.stopped
    number = -status if status < 0 else status - 128
    if number in (signal.SIGKILL, signal.SIGXCPU):
        if heard.began is not None and heard.ended - heard.began >= limits.cpu_seconds * 0.9:
            return f"used more than {limits.cpu_seconds} s of CPU"
        return "was killed"
    if number in set(signal.Signals):
        return f"was ended by {signal.Signals(number).name}"
    if status == 0:
        return "exited before its end"
    return heard.last_line() or f"exited with {status}"


def _processes() -> int:
    """Return how many threads this user runs: where it is not shut in, the limit counts them."""
    own, count = os.getuid(), 0
    for process in psutil.process_iter(["uids", "num_threads"]):
        uids, threads = process.info["uids"], process.info["num_threads"]
        count += threads or 0 if uids is not None and uids.real == own else 0
    return count
