"""The dense models on tasks: is each expert the best of them on the tasks of its own domain."""

from bam_lab.report.blocks import dense_experts
from bam_lab.report.contrasts import NotMeasured, OutOfScope
from bam_lab.report.evaluated_measures import group_accuracy, groups_of
from bam_lab.report.evidence import Evidence, SuiteFact
from bam_lab.report.leaves import Leaf
from bam_lab.report.settings import dense_groups
from bam_lab.report.stats import Blocks, block_difference
from bam_lab.spec.branches import home_of
from bam_lab.spec.measures import MEASURES

SEED_MODEL = "seed_model"


def task_diagonal(evidence: Evidence) -> list[Leaf]:
    """Compare each expert with every other dense model on the tasks of its domain, in each suite.

    Raises:
        NotMeasured: a dense model has not answered a suite.
        OutOfScope: no suite has tasks of a domain that has an expert.
    """
    leaves = []
    for settings, view in dense_groups(evidence):
        under = f" ({', '.join(settings)})" if settings else ""
        experts = [name for name in dense_experts(view) if home_of(name) == name]
        for suite in evidence.suites:
            at = f"@{suite.name}" if len(evidence.suites) > 1 else ""
            for home in (name for name in experts if name in groups_of(suite)):
                blocks = task_blocks(view, suite, home)
                for other in (SEED_MODEL, *experts):
                    if other == home:
                        continue
                    found = block_difference(blocks, other, home)  # more is better
                    if found is None:
                        why = f"the {home} expert or {other} has not answered {suite.name}"
                        raise NotMeasured(why)
                    label = f"{home} expert against {other}, {home}{at}{under}"
                    margin = MEASURES["task_accuracy"].margin
                    leaves.append(
                        Leaf(
                            label,
                            home + at,
                            "better",
                            found,
                            margin=margin,
                            linear=True,
                            turned=True,
                        )
                    )
    if not leaves:
        if not evidence.suites:
            raise NotMeasured("task_accuracy is not asked for: add it to `evaluate:` and run again")
        raise OutOfScope("no suite asks of a domain that has a dense expert")
    return leaves


def task_blocks(evidence: Evidence, suite: SuiteFact, group: str) -> Blocks:
    """Return {(dense model, replicate): accuracy} on a group of tasks.

    A model that all replicates share stands in each of them, as in `blocks.dense_blocks`.
    """
    dense = [
        found
        for found in evidence.evaluations
        if found.kind == "tasks" and found.role in (SEED_MODEL, "expert")
    ]
    own = sorted({found.replicate for found in dense if found.replicate is not None}) or [0]
    blocks = {}
    for found in dense:
        value, _ = group_accuracy(suite, found, group)
        if value is not None:
            for number in [found.replicate] if found.replicate is not None else own:
                blocks[found.name, number] = value
    return blocks
