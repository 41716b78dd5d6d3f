"""`plan ID --device NAME --count N --mfu X`: what an ablation takes on other devices."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console

from bam_lab.cli.output import amount, size, table
from bam_lab.cli.plan_lineage import longest
from bam_lab.cost.devices import DEVICES, Cluster, Need, need
from bam_lab.cost.match import DENSE, num_experts
from bam_lab.errors import SpecError
from bam_lab.spec.messages import nearest

if TYPE_CHECKING:
    from bam_lab.cli.planning import Plan, StageRow

MFU = 0.4
"""Assumed where none is stated: what well-tuned dense training reaches; mixtures often less."""
LOWEST = 1e-4
"""Below it hours are of no machine, and at last no numbers."""


@dataclass(frozen=True)
class Abroad:
    """Hold an ablation's training stages on a cluster.

    Attributes:
        needs: stage key -> what it takes.
        device_hours: of all stages together.
        wall_hours: if all devices work on one stage after another.
        path_hours: if every stage that can has devices of its own, as many.
    """

    cluster: Cluster
    needs: dict[str, Need]
    device_hours: float
    wall_hours: float
    path_hours: float


def cluster_of(device: str | None, count: int | None, mfu: float | None) -> Cluster | None:
    """Return the cluster that the options name; None without `--device`.

    Raises:
        SpecError: an unknown device, or options that have no effect without one.
    """
    if device is None:
        given = {"--count": count, "--mfu": mfu}
        if alone := [name for name, value in given.items() if value is not None]:
            raise SpecError(f"{alone[0]} must stand with --device, got none. Name a device.")
        return None
    if device not in DEVICES:
        raise SpecError(f"--device must be a known one, got {device!r}. {nearest(device, DEVICES)}")
    if mfu is not None and not LOWEST <= mfu <= 1:
        raise SpecError(
            f"--mfu must be at least {LOWEST:g} and at most 1, got {mfu:g}. 0.4 is a good one."
        )
    return Cluster(device, count or 1, MFU if mfu is None else mfu)


def abroad(plan: "Plan", cluster: Cluster) -> Abroad:
    """Return what every training stage of a plan takes on a cluster, done or not."""
    needs = {row.key: _need(plan, row, cluster) for row in plan.stages if row.steps}
    hours = {key: found.wall_hours for key, found in needs.items()}
    return Abroad(
        cluster=cluster,
        needs=needs,
        device_hours=sum(found.device_hours for found in needs.values()),
        wall_hours=sum(hours.values()),
        path_hours=max(longest(plan.stages, hours).values(), default=0.0),
    )


def _need(plan: "Plan", row: "StageRow", cluster: Cluster) -> Need:
    child = dict(plan.resolved.settings).get(row.setting, plan.resolved)
    method = child.arms[row.arm] if row.arm else DENSE
    experts = num_experts(child, method) if row.arm else 1
    return need(child.model, method, experts, row.batch_sequences, row.training_flops, cluster)


def as_json(found: Abroad) -> dict[str, Any]:
    """Return it as plain data."""
    return {**asdict(found), "needs": {key: asdict(need) for key, need in found.needs.items()}}


def show(rows: "Iterable[tuple[str, list[StageRow]]]", found: Abroad, out: Console) -> None:
    """Print it, one line for the replicates of a stage.

    Args:
        rows: label -> the stages that it stands for.
        found: what they take.
        out: where to.
    """
    cluster = found.cluster
    out.print(
        f"\nOn {cluster.count} x {cluster.name} at an MFU of {cluster.mfu:g}: "
        f"{amount(cluster.flops)} model FLOPs a second"
    )
    made = table("stage", ">device-hours", ">hours", ">tokens/s", ">memory", ">passes", ">sent")
    for label, stages in rows:
        one = found.needs[stages[0].key]
        made.add_row(
            f"{label} x {len(stages)}" if len(stages) > 1 else label,
            _hours(one.device_hours),
            _hours(one.wall_hours),
            amount(one.tokens_per_second),
            size(one.memory_bytes) + ("" if one.fits else "!"),
            f"{one.passes}",
            size(one.sent_bytes) if one.sent_bytes else "0",
        )
    out.print(made)
    out.print(_LEGEND, style="dim")
    if not all(one.fits for one in found.needs.values()):
        out.print(
            f"! more than the {size(cluster.device.memory_bytes)} of one {cluster.name}, one "
            "sequence at a time: take more devices, or recompute activations."
        )
    if any(one.idle for one in found.needs.values()):
        out.print("Some batches have fewer sequences than there are devices: some stand idle.")
    out.print(
        f"In all {_hours(found.device_hours)} device-hours of training: "
        f"{_hours(found.wall_hours)} hours one stage after another, {_hours(found.path_hours)} "
        "with stages side by side where they can be, each on as many devices."
    )


_LEGEND = (
    "Of one run. Memory of one device: weights, gradients and AdamW's moments in float32, sharded "
    "over all devices (ZeRO 3), activations of one pass; passes: into how many a device cuts its "
    "share of a batch; sent: by one device in one optimizer step, experts in groups."
)


def _hours(value: float) -> str:
    if value >= 99.95:
        return f"{value:,.0f}"
    if value >= 0.95:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.01 else "< 0.01"
