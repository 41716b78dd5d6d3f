"""Start worker processes, talk to them, end them."""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from bam_lab.record.files import explained

COMMAND = (sys.executable, "-m", "bam_lab.run.worker")


def environment(threads: int) -> dict[str, str]:
    """Return a worker's environment: thread counts settled before any library reads them."""
    count = str(threads)
    return {
        # Threads that wait by spinning take the cores of other stages: with two threads on two
        # busy cores a step of nano took 2 to 8 s, and 0.3 s with threads that sleep.
        "OMP_WAIT_POLICY": "PASSIVE",
        **os.environ,
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count,
        "RAYON_NUM_THREADS": count,
        "TOKENIZERS_PARALLELISM": "true" if threads > 1 else "false",
        # Two fixed arenas: glibc otherwise keeps memory in one arena a thread.
        "MALLOC_ARENA_MAX": "2",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "PYTHONHASHSEED": "0",
        "BAM_LAB_PARENT": str(os.getpid()),
    }


class Worker:
    """Hold one worker process, for stages of a fixed number of threads."""

    def __init__(
        self,
        number: int,
        threads: int,
        command: Sequence[str],
        logs: Path,
        inbox: "queue.Queue[tuple[int, dict[str, Any]]]",
    ):
        """Start the process; its messages go to `inbox` under its number, `died` last."""
        self.number, self.threads = number, threads
        self.log = logs / f"worker-{os.getpid()}-{number}.log"
        with explained(self.log):
            self._log_file = self.log.open("ab")
        self.process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log_file,
            env=environment(threads),
        )
        self._listener = threading.Thread(target=self._listen, args=(inbox,), daemon=True)
        self._listener.start()

    def _listen(self, inbox: "queue.Queue[tuple[int, dict[str, Any]]]") -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            inbox.put((self.number, json.loads(line)))
        inbox.put((self.number, {"event": "died", "code": self.process.wait()}))

    def send(self, message: dict[str, Any]) -> None:
        """Send one request; a dead worker is heard of through the inbox instead."""
        stdin: IO[bytes] | None = self.process.stdin
        assert stdin is not None
        with contextlib.suppress(BrokenPipeError):
            stdin.write(json.dumps(message).encode() + b"\n")
            stdin.flush()

    def close(self, grace: float = 2.0) -> None:
        """End the process: its stdin closes, and if that does not help it is killed."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(grace)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._listener.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._log_file.close()
        if self.log.exists() and self.log.stat().st_size == 0:
            self.log.unlink()
