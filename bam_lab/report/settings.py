"""One setting of an ablation as evidence of its own, so that every table can be made under it.

A view holds the arms of one setting, the stages that they need, and the recipe, scale and model
under it; its baseline is the setting's own. Tables, statistics and figures take a view as they take
the whole evidence.
"""

from collections.abc import Set

from bam_lab.report.evidence import Cell, Evidence, Setting, StageFact


def views(evidence: Evidence) -> tuple[tuple[str, Evidence], ...]:
    """Return (setting, its view), in the order of the file; ("", evidence) without settings.

    A view has no settings, so that its `baseline` and `baseline_of` are the setting's baseline.
    """
    if not evidence.settings:
        return (("", evidence),)
    return tuple((setting.name, _view(evidence, setting)) for setting in evidence.settings)


def shown(arm: str) -> str:
    """Return an arm's name where its setting is clear: `lory-16` of `lory-16@serial`."""
    return arm.partition("@")[0]


def setting_of(view: Evidence) -> str:
    """Return the setting that a view is of; empty where there is one only."""
    return view.baseline.partition("@")[2]


def users(evidence: Evidence) -> dict[str, tuple[str, ...]]:
    """Return stage key -> the settings that need it, where not all do; else nothing of it."""
    found: dict[str, list[str]] = {}
    for setting, view in views(evidence):
        for key in dict.fromkeys(stage.key for stage in view.stages):
            found.setdefault(key, []).append(setting)
    count = max(len(evidence.settings), 1)
    return {key: tuple(names) for key, names in found.items() if len(names) < count}


def dense_groups(evidence: Evidence) -> tuple[tuple[tuple[str, ...], Evidence], ...]:
    """Return the settings whose dense models are the same, and a view that holds these.

    One group, without a name, where every setting has the same.
    """
    groups: dict[tuple[str, ...], tuple[list[str], Evidence]] = {}
    for setting, view in views(evidence):
        keys = {stage.key for stage in view.stages if stage.name in ("seed_model", "expert")}
        groups.setdefault(tuple(sorted(keys)), ([], view))[0].append(setting)
    if len(groups) == 1:
        return (((), evidence),)
    return tuple((tuple(names), view) for names, view in groups.values())


def dense_suffixes(evidence: Evidence) -> dict[str, str]:
    """Return setting -> what tells its dense models from others of their names; else empty."""
    found = {
        setting: f" @{', '.join(names)}" for names, _ in dense_groups(evidence) for setting in names
    }
    return found or {arm.setting: "" for arm in evidence.arms}


def _view(evidence: Evidence, setting: Setting) -> Evidence:
    arms = tuple(
        arm.model_copy(update={"setting": ""})
        for arm in evidence.arms
        if arm.setting == setting.name
    )
    names = {arm.name for arm in arms}
    stages = _stages(evidence, names)
    keys = {stage.key for stage in stages}
    return evidence.model_copy(
        update={
            "ablation": {**evidence.ablation, "baseline": f"{evidence.baseline}@{setting.name}"},
            "recipe": setting.recipe,
            "sizes": setting.sizes,
            "model": setting.model,
            "arms": arms,
            "cells": tuple(cell for cell in evidence.cells if _belongs(cell, names, keys)),
            "noise": tuple(noise for noise in evidence.noise if noise.arm in names),
            "stages": stages,
            "curves": tuple(
                curve
                for curve in evidence.curves
                if curve.key in keys and (curve.arm is None or curve.arm in names)
            ),
            "receipts": tuple(receipt for receipt in evidence.receipts if receipt.arm in names),
            "stability": tuple(one for one in evidence.stability if one.arm in names),
            "measures": tuple(cell for cell in evidence.measures if cell.arm in names),
            "evaluations": tuple(
                one for one in evidence.evaluations if one.role != "arm" or one.name in names
            ),
            "settings": (),
        }
    )


def _stages(evidence: Evidence, arms: Set[str]) -> tuple[StageFact, ...]:
    """Return the stages of some arms, all that these need, and the evaluations of those."""
    by_key = {stage.key: stage for stage in evidence.stages}
    needed: set[str] = set()
    waiting = [stage.key for stage in evidence.stages if stage.arm in arms]
    while waiting:
        key = waiting.pop()
        if key not in needed:
            needed.add(key)
            waiting += by_key[key].inputs.values()
    return tuple(
        stage
        for stage in evidence.stages
        if (stage.arm is None or stage.arm in arms)
        and (stage.key in needed or stage.inputs.get("model") in needed)
    )


def _belongs(cell: Cell, arms: Set[str], keys: Set[str]) -> bool:
    own = cell.name in arms if cell.role in ("step-0", "arm") else True
    return own and cell.evaluation in keys
