"""A worker whose stages only sleep, fail, die or wait: what the scheduler's tests run."""

import os
import signal
import sys
import time
from pathlib import Path

from bam_lab.errors import Diverged, InputError, StageError
from bam_lab.record.files import write_json
from bam_lab.record.stages import REVISIONS
from bam_lab.run.context import Progress, StageContext, Stopped
from bam_lab.run.worker import serve


def act(context: StageContext) -> None:
    """Do what the spec says; leave a line in `attempts` so that a second run is seen."""
    attempts = context.settings.get("attempts") or os.environ["ATTEMPTS"]
    with Path(attempts).open("a") as file:
        file.write(f"{context.label} {os.getpid()}\n")
    for folder in context.inputs.values():
        assert (folder / "DONE").exists()
    if context.name == "corpus":
        write_json(context.work / "corpus.json", {"digest": "content"})
    match context.spec.get("do", os.environ.get(f"DO_{context.name}")):
        case "sleep":
            for step in range(5):
                context.check_stop()
                context.report(Progress(step, 5))
                time.sleep(context.spec["seconds"] / 5)
        case "fail":
            raise StageError("it was told to")
        case "defect":
            raise ValueError("a defect")
        case "mend":
            raise InputError("the user can mend it")
        case "diverge":
            raise Diverged(7, 0.001, 5)
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "until_stopped":
            while not context.stop.is_set():
                time.sleep(0.01)
            (context.work / "checkpoint").write_text("kept")
            raise Stopped
    (context.work / "result").write_text("x")
    print("noise on stdout")
    assert sys.stdin.read() == ""  # not the parent's messages


if __name__ == "__main__":
    sys.exit(serve(dict.fromkeys(REVISIONS, act)))
