"""Run the command line in this process, as `main` would, and catch what it prints."""

import contextlib
import io
import sys
from dataclasses import dataclass
from unittest import mock

from bam_lab.cli.main import main


@dataclass(frozen=True)
class Done:
    """Hold an exit code and both streams."""

    code: int
    out: str
    err: str


def bam_lab(*arguments: str, columns: int = 120) -> Done:
    """Run `bam-lab ARGUMENTS`; an exception that `main` lets through comes through here too."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["bam-lab", *arguments]),
        mock.patch.dict("os.environ", {"COLUMNS": str(columns), "TERM": "dumb"}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return Done(code, out.getvalue(), err.getvalue())
