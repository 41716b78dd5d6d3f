"""The command `bam-lab`, and the one place where an error becomes a message and an exit code."""

import io
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bam_lab import __version__
from bam_lab.cli import (
    bench,
    check,
    data,
    doctor,
    export,
    new,
    plan,
    prepare,
    prove,
    report,
    reproduce,
    run,
    runs,
)
from bam_lab.cli import list as list_verb
from bam_lab.errors import EXIT_BAD_INPUT, BamLabError, SpecError
from bam_lab.record.files import explained

app = typer.Typer(
    name="bam-lab",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("list")(list_verb.list_)
app.command("check")(check.check)
app.command("new")(new.new)
app.command("plan")(plan.plan)
app.command("prepare")(prepare.prepare)
app.command("run")(run.run)
app.command("prove")(prove.prove)
app.command("report")(report.report)
app.command("reproduce")(reproduce.reproduce)
app.command("export")(export.export)
app.command("import")(export.import_)
app.add_typer(runs.app, name="runs")
app.add_typer(data.app, name="data")
app.command("bench")(bench.bench)
app.command("doctor")(doctor.doctor)

# The package that an import wants -> the extra that brings it.
_EXTRAS = {
    "torch": "train",
    "lightning": "train",
    "safetensors": "train",
    "jaxtyping": "train",
    "tokenizers": "data",
    "reasoning_gym": "data",
    "rensa": "data",
    "pyarrow": "data",
    "charset_normalizer": "data",
    "sklearn": "data",
    "threadpoolctl": "data",
    "datasets": "hub",
    "faiss": "faiss",
    "matplotlib": "report",
    "peft": "hf",
    "transformers": "hf",
}


def _version(value: bool) -> None:
    if value:
        typer.echo(f"bam-lab {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Compute-matched ablations of upcycled mixture-of-experts language models.

    `bam-lab list` shows what can be asked, `bam-lab reproduce ID` answers it.
    """


def main() -> None:
    """Run the command line; leave with 0 done, 1 a stage failed, 2 the user's input is wrong."""
    try:
        _print_anything()
        # The last net for a disk that is full or closed to us.
        with explained(Path("the output"), what="written or read"):
            app()
    except BamLabError as error:
        _tell(error)
        sys.exit(error.exit_code)
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        print(
            f"bam-lab: {error.name} must be installed for this. "
            f"Run: pip install 'bam-lab[{extra}]'",
            file=sys.stderr,
        )
        sys.exit(EXIT_BAD_INPUT)


def _print_anything() -> None:
    """Print what the terminal's encoding lacks as `?` rather than stop over it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _tell(error: BamLabError) -> None:
    """Print one line a problem; never wrapped, so that `file:line:col` can be clicked."""
    out = Console(stderr=True, highlight=False)
    problems = error.problems if isinstance(error, SpecError) else [str(error)]
    for problem in problems:
        out.print("[red]error:[/red] ", end="")
        out.print(problem, markup=False, soft_wrap=True)
    if len(problems) > 1:
        out.print(f"{len(problems)} problems.")
