"""`bam-lab run`: do every stage of an ablation that is not done."""

from typing import TYPE_CHECKING

import typer
from rich.console import Console

from bam_lab.cli import options
from bam_lab.cli.domains import resolve
from bam_lab.cli.output import console
from bam_lab.record.store import Store, store_root

if TYPE_CHECKING:
    from bam_lab.run.reproduce import RunOutcome


def run(
    reference: options.Reference,
    scale: options.Scale = None,
    overrides: options.Overrides = None,
    domains: options.Domains = None,
    replicates: options.Replicates = None,
    store: options.StorePath = None,
    workers: options.Workers = None,
    precision: options.PrecisionOption = "auto",
    device: options.DeviceOption = "auto",
    quiet: options.Quiet = False,
) -> None:
    """Train and evaluate every arm; stop and start again at will."""
    from bam_lab.run.reproduce import RunOptions, run_ablation

    resolved = resolve(reference, scale, overrides, domains, store_root(store))
    chosen = RunOptions(workers=workers, precision=precision, device=device, quiet=quiet)
    outcome = run_ablation(resolved, Store(store_root(store)), replicates, chosen)
    tell(outcome, console())
    raise typer.Exit(outcome.exit_code)


def tell(outcome: "RunOutcome", out: Console) -> None:
    """Print how a run went, with the reason of every stage that failed."""
    for label, reason in outcome.failures.items():
        out.print(f"{label} failed: {reason}", style="red", markup=False)
    for label, reason in outcome.missing.items():
        out.print(f"{label} is missing: {reason}", style="yellow", markup=False)
    count = len(outcome.graph.stages)
    left = len(outcome.failures) + len(outcome.missing)
    out.print(f"{count - left} of {count} stages done, {outcome.ran} of them now.")
