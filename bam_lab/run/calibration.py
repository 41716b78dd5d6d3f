"""Measured matches: the stage that times an ablation's models, and what the store has of it."""

from dataclasses import replace
from typing import Any

from bam_lab.cost.match.knobs import decoded_models
from bam_lab.cost.match.measured import Model, trained_models
from bam_lab.record.files import intact, read_json
from bam_lab.record.store import Store
from bam_lab.run.stage import Stage, identify, plain
from bam_lab.spec.match_rules import MEASURED
from bam_lab.spec.resolved import ResolvedAblation

_SECONDS_A_MODEL = 6.0


def calibration_stage(resolved: ResolvedAblation) -> Stage | None:
    """Return the stage that times what the match of one setting needs; None where it needs none.

    It reads nothing, so it can run before there is a corpus.
    """
    if resolved.ablation.match.on not in MEASURED:
        return None
    models, size = models_of(resolved), resolved.scale.phases.mixture
    training = resolved.ablation.match.on == "device-time"
    spec = {
        "measures": "training step" if training else "decoding",
        "model": plain(resolved.model),
        "models": [_identity(model) for model in models],
        "threads": size.threads,
    }
    if training:
        spec["batch_sequences"] = size.batch_sequences
    return Stage(
        name="calibrate",
        label="calibrate",
        spec=spec,
        inputs={},
        fingerprint=identify("calibrate", spec, {}),
        threads=size.threads,
        seconds=_SECONDS_A_MODEL * len(models),
        role="calibrate",
        alone=True,
    )


def models_of(resolved: ResolvedAblation) -> tuple[Model, ...]:
    """Return the models that are timed, in the order of the artifact."""
    if resolved.ablation.match.on == "device-time":
        return trained_models(resolved)
    return decoded_models(resolved)


def calibrated(resolved: ResolvedAblation, store: Store) -> ResolvedAblation:
    """Return the ablation with what was measured of its models, in each of its settings.

    Unchanged where the match needs no measurement or the store has none.
    """
    children = tuple(_calibrated(child, store) for child in resolved.children)
    return replace(_calibrated(resolved, store), children=children)


def _calibrated(resolved: ResolvedAblation, store: Store) -> ResolvedAblation:
    stage = calibration_stage(resolved) if not resolved.children else None
    if stage is None or resolved.measured is not None or not store.is_done(stage.key):
        return resolved
    folder = store.stage(stage.key)
    with intact(folder):
        seconds = read_json(folder / "calibration.json")["seconds"]
        keys = [model.key for model in models_of(resolved)]
        return replace(resolved, measured=dict(zip(keys, seconds, strict=True)))


def is_known(resolved: ResolvedAblation) -> bool:
    """Return whether nothing of the match is still to be measured."""
    measured = resolved.ablation.match.on in MEASURED
    return not measured or all(child.measured is not None for _, child in resolved.settings)


def _identity(model: Model) -> dict[str, Any]:
    """Return a model as it enters the fingerprint; the names of its experts are labels."""
    method: dict[str, Any] = plain(model.method)
    for label in ("experts", "branch"):
        method.pop(label, None)
    return {"method": method, "num_experts": model.num_experts}
