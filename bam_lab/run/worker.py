"""A worker process: runs stages one after the other, so that torch is imported once.

JSON lines over stdin and stdout; the parent says `{"do": "run", ...}` or `{"do": "stop"}`, and
hears `progress`, then one of `done`, `failed`, `stopped`. Whatever libraries print goes to stderr,
which the parent keeps in the store's `logs/`.

A worker never outlives its parent: it ends when stdin closes, and on Linux the kernel kills it.
"""

import contextlib
import json
import os
import queue
import signal
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from bam_lab.errors import BamLabError, Diverged
from bam_lab.record.files import explained, write_json
from bam_lab.record.manifest import manifest
from bam_lab.record.numerics import Numerics
from bam_lab.record.processes import end_with_parent
from bam_lab.run.context import Progress, StageContext, StageFunction, Stopped

_REPORT_SECONDS = 0.2


class Channel:
    """Send messages to the parent; progress at most five times a second."""

    def __init__(self, stream: TextIO):
        """Send through `stream`."""
        self._stream = stream
        self._lock = threading.Lock()
        self._next = 0.0

    def send(self, message: dict[str, Any]) -> None:
        """Send one message."""
        with self._lock, contextlib.suppress(BrokenPipeError):
            self._stream.write(json.dumps(message) + "\n")
            self._stream.flush()

    def progress(self, progress: Progress) -> None:
        """Send progress, unless the last one was just sent."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _REPORT_SECONDS
            self.send({"event": "progress", **progress.as_dict()})


def serve(table: Mapping[str, StageFunction]) -> None:
    """Run what the parent asks for, until it closes stdin."""
    end_with_parent(int(os.environ["BAM_LAB_PARENT"]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, who says stop.
    # What a stage or its subprocesses read and print must not reach the two pipes.
    asked = os.fdopen(os.dup(0), encoding="utf-8")
    channel = Channel(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    stop = threading.Event()
    requests: queue.Queue[dict[str, Any]] = queue.Queue()
    threading.Thread(target=_listen, args=(asked, requests, stop), daemon=True).start()
    channel.send({"event": "ready"})
    while True:
        channel.send(_attempt(requests.get(), table, channel, stop))


def _listen(asked: TextIO, requests: "queue.Queue[dict[str, Any]]", stop: threading.Event) -> None:
    for line in asked:
        message = json.loads(line)
        if message["do"] == "stop":
            stop.set()
        else:
            requests.put(message)
    os._exit(0)


def _attempt(
    message: dict[str, Any],
    table: Mapping[str, StageFunction],
    channel: Channel,
    stop: threading.Event,
) -> dict[str, Any]:
    """Run one stage; return the message that says how it ended."""
    started = time.time()
    try:
        context = _context(message, channel, stop)
        write_json(context.work / "spec.json", message["spec_json"])
        with explained(context.work):
            table[context.name](context)
        made = manifest(
            numerics=context.numerics,
            threads=context.threads,
            started=started,
            facts=context.facts,
        )
        write_json(context.work / "manifest.json", made)
    except Stopped:
        return {"event": "stopped"}
    except Diverged as error:
        failure = {"step": error.step, "lr": error.lr, "last_checkpoint": error.last_checkpoint}
        return {"event": "failed", "reason": str(error), **failure}
    except BamLabError as error:
        return {"event": "failed", "reason": str(error), "exit_code": error.exit_code}
    except Exception as error:  # The stage's defect must not end the other stages.
        traceback.print_exc()
        reason = f"{type(error).__name__}: {error}"
        return {"event": "failed", "reason": reason, "traceback": traceback.format_exc()}
    return {"event": "done", "seconds": time.time() - started}


def _context(message: dict[str, Any], channel: Channel, stop: threading.Event) -> StageContext:
    return StageContext(
        name=message["spec_json"]["stage"],
        label=message["spec_json"]["label"],
        spec=message["spec_json"]["spec"],
        inputs={role: Path(folder) for role, folder in message["inputs"].items()},
        settings=message["settings"],
        threads=message["threads"],
        work=Path(message["work"]),
        cache=Path(message["cache"]),
        numerics=Numerics(**message["numerics"]),
        facts={},
        report=channel.progress,
        stop=stop,
    )


if __name__ == "__main__":
    from bam_lab.run.stages import STAGES

    serve(STAGES)
