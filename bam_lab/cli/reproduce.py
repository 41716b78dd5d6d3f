"""`bam-lab reproduce`: plan, run and report; the second time only the report is made."""

import typer

from bam_lab.cli import options, plan, report, run
from bam_lab.cli.domains import resolve
from bam_lab.cli.output import console
from bam_lab.record.store import Store, store_root


def reproduce(
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
    out: report.Out = None,
) -> None:
    """Do everything: build the corpus, train, evaluate, write the report."""
    from bam_lab.cli.planning import make_plan
    from bam_lab.run.reproduce import RunOptions, run_ablation

    resolved = resolve(reference, scale, overrides, domains, store_root(store))
    where, terminal = Store(store_root(store)), console()
    made = make_plan(resolved, where, replicates, workers)
    if not plan.is_done(made):
        plan.show(made, terminal)
    chosen = RunOptions(workers=workers, precision=precision, device=device, quiet=quiet)
    outcome = run_ablation(resolved, where, replicates, chosen)
    run.tell(outcome, terminal)
    if outcome.index is not None:
        from bam_lab.report.render import render

        report.show(render(where.root, outcome.index, out), terminal)
    raise typer.Exit(outcome.exit_code)
