"""Write what a report needs to find the stages of one ablation in the store.

`ablations/<id>-<scale>[-overridden]/index.json`. A stage whose `replicate` is null is shared by all
replicates; one whose `arm` is null by all arms. One that two arms share has a row for each.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bam_lab.cost.match import branches, mixed, settled, solve
from bam_lab.record.files import intact, make_folder, read_json, write_text
from bam_lab.record.store import Store
from bam_lab.run.calibration import calibrated
from bam_lab.run.evaluations import suites_of
from bam_lab.run.stage import Graph, Stage
from bam_lab.spec.base import Spec
from bam_lab.spec.resolved import ResolvedAblation
from bam_lab.spec.task_files import Suite
from bam_lab.spec.tasks import HarnessTask

NAME = "index.json"


def index_key(resolved: ResolvedAblation) -> str:
    """Return the folder name of an ablation at its scale; overridden runs stand apart."""
    mark = "-overridden" if resolved.overridden else ""
    return f"{resolved.ablation.id}-{Path(resolved.scale_name).stem}{mark}"


def write_index(resolved: ResolvedAblation, graph: Graph, store: Store, replicates: int) -> Path:
    """Write the index; return its path."""
    folder = make_folder(store.ablation(index_key(resolved)))
    resolved = settled(calibrated(resolved, store))
    budgets = solve(resolved)
    content = {
        "ablation": _ablation(resolved),
        "recipe": _dump(resolved.recipe),
        "scale": _dump(resolved.scale),
        "scale_name": Path(resolved.scale_name).stem,
        "model": _dump(resolved.model),
        "overrides": list(resolved.overrides),
        "added": list(resolved.added),
        "general": resolved.corpus.general,
        "domains": resolved.domains,
        "held_out_only": resolved.held_out_only,
        "arms": {
            arm: {
                "method": _dump(method),
                "data": _dump(child.reads(arm)),
                "experts": list(mixed(child, method)),
                "branches": [branch.label for branch in branches(child, arm)],
                "budget": asdict(budgets[arm]),
                "setting": setting,
                "base": child.bases[arm],
                "axes": child.axes[arm],
            }
            for setting, child in resolved.settings
            for arm, method in child.arms.items()
        },
        "settings": {child.setting: _setting(child) for child in resolved.children},
        "suites": [_suite(suite) for suite in suites_of(resolved)],
        "external": [_dump(one) for one in resolved.external],
        "replicates": replicates,
        "stages": _rows(graph),
        "corpus": graph.corpus.fingerprint,
    }
    # Not sorted: arms and domains stand in the order of their files, in the report too.
    write_text(folder / NAME, json.dumps(content, indent=1, allow_nan=False) + "\n")
    return folder / NAME


def refresh_index(resolved: ResolvedAblation, graph: Graph, store: Store) -> bool:
    """Write what the file says now into the index of the last run, if its stages are the same.

    Claims, columns, margins and external scores may change after a run; no stage hangs on them.

    Args:
        resolved: the ablation as the file has it now.
        graph: its graph, with as many replicates as the index has.
        store: where the last run was.

    Returns:
        Whether index and file now agree.
    """
    old = read_index(resolved, store)
    if old["stages"] != json.loads(json.dumps(_rows(graph))):
        return False
    write_index(resolved, graph, store, old["replicates"])
    return True


def read_index(resolved: ResolvedAblation, store: Store) -> dict[str, Any]:
    """Return the index of the last run."""
    path = store.ablation(index_key(resolved)) / NAME
    with intact(path):
        content: dict[str, Any] = read_json(path)
    return content


def asks_anew(resolved: ResolvedAblation, old: dict[str, Any]) -> bool:
    """Return whether the file asks something else than the last run's index says."""
    now = {"ablation": _ablation(resolved), "external": [_dump(x) for x in resolved.external]}
    return any(old.get(key) != value for key, value in now.items())


def _rows(graph: Graph) -> list[dict[str, Any]]:
    return [_row(stage) for stage in (*graph.stages.values(), *graph.again)]


def _suite(suite: Suite) -> dict[str, Any]:
    """Return what a report needs to know of a suite."""
    tasks = []
    for asked in suite.asked:
        task = asked.task
        tasks.append(
            {
                "name": asked.name,
                "title": task.title,
                "group": asked.group,
                "shots": asked.shots,
                "metric": task.metric,
                "filter": task.filter if isinstance(task, HarnessTask) else "none",
                "chance": task.chance,
            }
        )
    return {
        "name": suite.spec.name,
        "title": suite.spec.title,
        "source": suite.spec.source,
        "tasks": tasks,
        "lacking": {one.name: one.why for one in suite.spec.lacking},
    }


def _setting(child: ResolvedAblation) -> dict[str, Any]:
    return {
        "axes": child.point.axes,
        "changes": child.point.changes,
        "recipe": _dump(child.recipe),
        "scale": _dump(child.scale),
        "model": _dump(child.model),
    }


def _row(stage: Stage) -> dict[str, Any]:
    return {
        "name": stage.name,
        "label": stage.label,
        "role": stage.role,
        "arm": stage.arm,
        "replicate": stage.replicate,
        "domain": stage.domain,
        "fingerprint": stage.fingerprint,
        "key": stage.key,
        "inputs": stage.inputs,
        **({"arms": stage.settings["arms"]} if stage.name == "latency" else {}),
    }


def _ablation(resolved: ResolvedAblation) -> Any:
    """Return the ablation; of its own claims only what is written, as what is not has no effect."""
    claims = resolved.ablation.own_claims.items()
    own = {
        name: claim.model_dump(mode="json", by_alias=True, exclude_unset=True)
        for name, claim in claims
    }
    return _dump(resolved.ablation) | {"own_claims": own}


def _dump(spec: Spec) -> Any:
    return spec.model_dump(mode="json", by_alias=True)
