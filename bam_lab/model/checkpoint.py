"""A model on disk: weights as safetensors, shape and method as JSON; nothing is unpickled."""

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from pydantic import TypeAdapter
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from bam_lab.model.ensemble import Ensemble
from bam_lab.model.transformer import Transformer
from bam_lab.spec.methods import BTMMethod, MethodSpec
from bam_lab.spec.model import ModelSpec

WEIGHTS, SHAPE = "model.safetensors", "model.json"


def save(
    state: Mapping[str, Tensor],
    spec: ModelSpec,
    method: MethodSpec,
    num_experts: int,
    folder: Path,
) -> None:
    """Write the state of a `Transformer` or `Ensemble` into `folder`, which is made if missing."""
    folder.mkdir(parents=True, exist_ok=True)
    shape = {
        "model": spec.model_dump(mode="json", by_alias=True),
        "method": method.model_dump(mode="json", by_alias=True),
        "num_experts": num_experts,
    }
    (folder / SHAPE).write_text(json.dumps(shape, indent=1) + "\n", encoding="utf-8")
    save_file({name: t.detach().contiguous() for name, t in state.items()}, folder / WEIGHTS)


def load(folder: Path) -> Transformer:
    """Read the dense model or mixture that `save` wrote.

    Raises:
        ValueError: the weights are not whole.
    """
    model = load_any(folder)
    assert isinstance(model, Transformer), f"{folder} holds an ensemble"
    return model


def load_any(folder: Path) -> Transformer | Ensemble:
    """Read whatever model `save` wrote.

    Raises:
        ValueError: the weights are not whole.
    """
    shape = json.loads((folder / SHAPE).read_text(encoding="utf-8"))
    spec = ModelSpec.model_validate_json(json.dumps(shape["model"]))
    method: MethodSpec = TypeAdapter(MethodSpec).validate_json(json.dumps(shape["method"]))
    try:
        state = load_file(folder / WEIGHTS)
    except SafetensorError as error:
        raise ValueError(f"{WEIGHTS}: {error}") from error
    if isinstance(method, BTMMethod):
        ensemble = Ensemble(spec, method, shape["num_experts"])
        ensemble.load_state_dict(state)
        return ensemble
    return build(spec, method, shape["num_experts"], state)


def build(
    spec: ModelSpec, method: MethodSpec, num_experts: int, state: Mapping[str, Tensor]
) -> Transformer:
    """Return a `Transformer` holding `state`, every tensor of it and no other."""
    model = Transformer(spec, method, num_experts)
    model.load_state_dict(
        {name: t.to(torch.float32) if t.is_floating_point() else t for name, t in state.items()}
    )
    return model
