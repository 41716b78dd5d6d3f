"""Checkpoints that cannot be used: every one is told with its file, what was wanted, what to do."""

import json
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from bam_lab.errors import EXIT_BAD_INPUT, CheckpointError
from bam_lab.methods import BTX, Dense
from bam_lab.model import checkpoint
from bam_lab.model.checkpoint import SHAPE, WEIGHTS
from tests.model.cases import DENSE, METHODS, model_of, shape

GATE = "layers.0.ffn.gate"


def saved(folder, model=None, tokenizer=None):
    model = model or model_of(DENSE)
    method, count = model.method, model.num_experts
    checkpoint.save(model.state_dict(), model.spec, method, count, folder, tokenizer)
    return folder


def weights_edited(folder, edit):
    state = load_file(folder / WEIGHTS)
    edit(state)
    save_file(state, folder / WEIGHTS)


def described_as(folder, **changes):
    told = json.loads((folder / SHAPE).read_text()) | changes
    (folder / SHAPE).write_text(json.dumps(told))


def files(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def refused(folder, *parts):
    """Every part is in the message, the reader is told what to do, and nothing is written."""
    before = files(folder) if folder.is_dir() else None
    with pytest.raises(CheckpointError) as error:
        Dense.from_checkpoint(folder)
    assert error.value.exit_code == EXIT_BAD_INPUT
    for part in (str(folder), *parts):
        assert part in str(error.value)
    assert str(error.value).endswith(".")
    assert before is None or files(folder) == before


def test_a_whole_checkpoint_is_read(tmp_path):
    model = model_of(DENSE)
    dense = Dense.from_checkpoint(saved(tmp_path, model, tokenizer="ab" * 32))
    assert dense.tokenizer == "ab" * 32
    assert Dense.from_seed(dense).tokenizer == dense.tokenizer
    for name, tensor in dense.model.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_floats_are_cast(tmp_path, dtype):
    folder = saved(tmp_path)
    weights_edited(folder, lambda state: state.update({n: t.to(dtype) for n, t in state.items()}))
    described_as(folder, weights=None)
    assert Dense.from_checkpoint(folder).model.embedding.dtype == torch.float32


def test_a_checkpoint_of_before_tokenizers_were_recorded_is_read(tmp_path):
    assert "tokenizer" not in json.loads((saved(tmp_path) / SHAPE).read_text())
    assert Dense.from_checkpoint(tmp_path).tokenizer is None


def test_nothing_there(tmp_path):
    refused(tmp_path / "gone", "must be a folder that holds model.json", "got nothing there")
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"")
    refused(file, "must be a folder that holds model.json", "got a file")


def test_no_model_json(tmp_path):
    (saved(tmp_path) / SHAPE).unlink()
    refused(tmp_path, SHAPE, "must say the model's shape and method, got no such file")


@pytest.mark.parametrize("content", ["", "{", "\x00\x01"])
def test_model_json_that_is_not_json(tmp_path, content):
    (saved(tmp_path) / SHAPE).write_text(content)
    refused(tmp_path, SHAPE, "must be JSON")


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"method": {"method": "bamm"}}, "Input tag 'bamm'"),
        ({"method": {"method": "btx", "kv": "shared"}}, "ffn_router: Field required"),
        ({"model": {"dim": 4}}, "Field required"),
        ({"model": []}, "should be an object"),
        ({"num_experts": 3}, "num_experts 3 is not what dense makes"),
        ({"num_experts": None}, "num_experts None is not what dense makes"),
        ({"method": METHODS["btx-soft"].model_dump(mode="json"), "num_experts": "4"}, "experts 4"),
    ],
)
def test_model_json_that_describes_no_known_model(tmp_path, changes, part):
    described_as(saved(tmp_path), **changes)
    refused(tmp_path, SHAPE, "must hold model, method and num_experts as this version", part)


@pytest.mark.parametrize("key", ["model", "method", "num_experts"])
def test_model_json_that_lacks_a_key(tmp_path, key):
    told = json.loads((saved(tmp_path) / SHAPE).read_text())
    del told[key]
    (tmp_path / SHAPE).write_text(json.dumps(told))
    refused(tmp_path, SHAPE, f"KeyError: '{key}'")
    (tmp_path / SHAPE).write_text("[]")
    refused(tmp_path, SHAPE, "TypeError")


def test_a_method_that_the_shape_rules_out(tmp_path):
    model = model_of(METHODS["btx-split-soft"])
    saved(tmp_path, model)
    described_as(
        tmp_path, model=model.spec.model_dump(mode="json", by_alias=True) | {"ffn_dim": 23}
    )
    with pytest.raises(CheckpointError, match=r"model\.json must describe.*chunks must divide"):
        checkpoint.load(tmp_path)


def test_no_weights(tmp_path):
    (saved(tmp_path) / WEIGHTS).unlink()
    refused(tmp_path, WEIGHTS, "must hold the weights, got no such file")


@pytest.mark.parametrize("kept", [0, 5, 100, -100])
def test_weights_cut_short(tmp_path, kept):
    whole = (saved(tmp_path) / WEIGHTS).read_bytes()
    (tmp_path / WEIGHTS).write_bytes(whole[:kept])
    refused(tmp_path, WEIGHTS, "must be a whole safetensors file", "Copy the checkpoint again")


@pytest.mark.parametrize("name", [SHAPE, WEIGHTS])
def test_a_file_that_may_not_be_read(tmp_path, monkeypatch, name):
    whole = Path.open

    def guarded(path, *arguments, **settings):
        if path.name == name:
            raise PermissionError(13, "Permission denied")
        return whole(path, *arguments, **settings)

    saved(tmp_path)
    monkeypatch.setattr(Path, "open", guarded)
    with pytest.raises(CheckpointError, match="must be readable, got: Permission denied"):
        checkpoint.read(tmp_path)


def test_one_wrong_bit(tmp_path):
    file = saved(tmp_path) / WEIGHTS
    content = bytearray(file.read_bytes())
    content[-2] ^= 1
    file.write_bytes(content)
    refused(tmp_path, WEIGHTS, "must have the SHA-256 that model.json beside it tells")


def test_weights_of_noise(tmp_path):
    (saved(tmp_path) / WEIGHTS).write_bytes(bytes(range(256)) * 4)
    refused(tmp_path, WEIGHTS, "must be a whole safetensors file")


class Bomb:
    """What runs when it is unpickled."""

    def __reduce__(self):
        return (pytest.fail, ("a pickle was opened",))


def torch_archive(path):
    torch.save({"bomb": Bomb()}, path)


def torch_legacy(path):
    torch.save({"bomb": Bomb()}, path, _use_new_zipfile_serialization=False)


def bare_pickle(path):
    path.write_bytes(pickle.dumps(Bomb()))


@pytest.mark.parametrize("write", [torch_archive, torch_legacy, bare_pickle])
def test_pickles_are_never_opened(tmp_path, write):
    """Under the safetensors name, in its place, or offered by name."""
    folder = saved(tmp_path)
    write(folder / WEIGHTS)
    refused(folder, WEIGHTS, "must be a safetensors file, got a pickle", "Save the weights with")
    for suffix in (".pt", ".pth", ".bin"):
        named = folder / f"pytorch_model{suffix}"
        write(named)
        (folder / WEIGHTS).unlink(missing_ok=True)
        refused(folder, WEIGHTS, f"must hold the weights, got {named.name}, a pickle")
        with pytest.raises(CheckpointError, match="must be a safetensors file, got a pickle"):
            checkpoint.read_weights(named)
        named.unlink()


def test_a_header_that_begins_like_a_pickle_is_none(tmp_path):
    """0x80 0x02 is also the length of a header of 640 bytes."""
    file = tmp_path / WEIGHTS
    for pad in range(1000):
        save_file({"a": torch.ones(2)}, file, {"pad": "x" * pad})
        if file.read_bytes()[:2] == b"\x80\x02":
            break
    assert file.read_bytes()[:2] == b"\x80\x02"
    assert torch.equal(checkpoint.read_weights(file)["a"], torch.ones(2))


@pytest.mark.parametrize(
    ("edit", "part"),
    [
        (lambda s: s.pop(GATE), f"it lacks {GATE}"),
        (lambda s: s.update(extra=torch.ones(1)), "it holds extra too, which the model has not"),
        (
            lambda s: s.update({GATE: torch.ones(5, 16)}),
            f"it must have other shapes: {GATE} [5, 16] instead of [24, 16]",
        ),
        (
            lambda s: s.update({GATE: torch.ones(24, 16, dtype=torch.int32)}),
            f"it must have other types: {GATE} int32",
        ),
        (lambda s: s[GATE][3, 3].fill_(float("nan")), f"got NaN or infinity in {GATE}; its train"),
        (lambda s: s[GATE][3, 3].fill_(float("-inf")), f"got NaN or infinity in {GATE}"),
        (
            lambda s: [s.pop(n) for n in list(s) if n.startswith("layers.1")],
            "it lacks layers.1.norm, layers.1.attention.query, layers.1.attention.key and 5 more",
        ),
    ],
)
def test_weights_that_are_not_the_models(tmp_path, edit, part):
    weights_edited(saved(tmp_path), edit)
    refused(tmp_path, WEIGHTS, "that model.json beside it describes", part)


def test_a_mixture_is_no_dense_expert(tmp_path):
    saved(tmp_path, model_of(METHODS["btx-top-1"]))
    refused(tmp_path, "must hold a dense model, got a mixture by btx")
    assert checkpoint.load(tmp_path).num_experts == 4


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"ffn_dim": 32}, "got ffn_dim 32 and 24"),
        ({"vocab_size": 62, "num_layers": 3}, "got vocab_size 62 and 61, num_layers 3 and 2"),
        ({"norm_eps": 1e-6}, "got norm_eps 1e-06 and 1e-05"),
    ],
)
def test_experts_of_other_shapes_are_not_mixed(tmp_path, changes, part):
    one = saved(tmp_path / "one")
    two = saved(tmp_path / "two", model_of(DENSE, **changes))
    experts = [Dense.from_checkpoint(folder) for folder in (one, two)]
    with pytest.raises(CheckpointError) as error:
        BTX.from_experts(experts)
    assert f"{two} must have the shape of {one}, with which it is mixed, {part}" in str(error.value)


def test_experts_of_other_tokenizers_are_not_mixed(tmp_path):
    folders = [
        saved(tmp_path / str(i), tokenizer=digest)
        for i, digest in enumerate((None, "ab" * 32, "cd" * 32))
    ]
    experts = [Dense.from_checkpoint(folder) for folder in folders]
    assert BTX.from_experts(experts[:2]).model.num_experts == 2  # not recorded: not compared
    with pytest.raises(CheckpointError) as error:
        BTX.from_experts(experts)
    wanted = f"{folders[2]} must have the tokenizer of {folders[1]}, with which it is mixed"
    assert wanted in str(error.value)
    assert "cdcdcdcdcdcd and abababababab" in str(error.value)


def test_experts_in_memory_are_named_by_their_place():
    experts = [Dense.from_scratch(shape()), Dense.from_scratch(shape(ffn_dim=32))]
    with pytest.raises(CheckpointError, match="expert 1 must have the shape of expert 0"):
        BTX.from_experts(experts)
