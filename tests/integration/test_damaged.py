"""Every command on a store that was damaged: one message that names what to delete."""

import os
import shutil
from pathlib import Path

import pytest

from bam_lab.errors import InputError
from bam_lab.record.store import Store
from bam_lab.run.stages_common import load_model
from bam_lab.train import resume
from tests.cli.command import bam_lab

FIXTURE = "tests/fixtures/ablation.yaml"
CORPUS = "tests/fixtures/corpus.yaml"


@pytest.fixture
def store(whole_store: Store, tmp_path: Path) -> Path:
    """A copy of the finished store; files are linked, so damage replaces them."""
    return Path(shutil.copytree(whole_store.root, tmp_path / "store", copy_function=os.link))


def damage(path: Path, how: str) -> None:
    whole = path.read_bytes()
    path.unlink()
    if how == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    elif how == "noise":
        path.write_bytes(bytes(range(255, 0, -1)) + b"\n")


@pytest.mark.parametrize("how", ["cut", "noise", "gone"])
@pytest.mark.parametrize(
    ("stage", "name", "command"),
    [
        ("mixture", "manifest.json", ("report", FIXTURE)),
        ("mixture", "ledger.json", ("report", FIXTURE)),
        ("mixture", "ledger.json", ("plan", FIXTURE)),
        ("upcycle", "manifest.json", ("plan", FIXTURE)),
        ("upcycle", "receipt.json", ("report", FIXTURE)),
        ("evaluate", "scores.csv", ("report", FIXTURE)),
        ("evaluate", "documents.parquet", ("report", FIXTURE)),
        ("tokenizer", "tokens/tokens.json", ("prove", FIXTURE)),
        ("corpus", "corpus.json", ("plan", FIXTURE)),
        ("corpus", "corpus.json", ("data", "show", CORPUS)),
    ],
)
def test_a_damaged_stage(
    store: Path, stage: str, name: str, command: tuple[str, ...], how: str
) -> None:
    folders = sorted((store / "stages").glob(f"{stage}-*"))
    for folder in folders:
        damage(folder / name, how)
    done = bam_lab(*command, "--store", str(store))
    assert done.code == 2, done.out
    assert any(f"{folder} is damaged" in done.err for folder in folders), done.err
    assert "Delete it and run the ablation again" in done.err


@pytest.mark.parametrize("how", ["cut", "noise"])
def test_damage_is_told_by_runs(store: Path, how: str) -> None:
    folder = next((store / "stages").glob("mixture-*"))
    for name in ("manifest.json", "metrics.jsonl"):
        damage(folder / name, how)
        done = bam_lab("runs", "show", folder.name, "--store", str(store))
        if name == "metrics.jsonl" and how == "cut":  # a torn last row is left out
            assert done.code == 0
        else:
            assert done.code == 2 and f"{folder} is damaged" in done.err
        shutil.copy(next((store / "stages").glob("expert-*")) / name, folder / name)


@pytest.mark.parametrize("how", ["cut", "noise"])
def test_damaged_files_of_the_store(store: Path, how: str) -> None:
    index = next((store / "ablations").glob("*/index.json"))
    damage(index, how)
    done = bam_lab("report", FIXTURE, "--store", str(store))
    assert done.code == 2 and f"{index} is damaged" in done.err
    damage(store / "numerics.json", how)
    for command in (("doctor",), ("plan", FIXTURE), ("run", FIXTURE, "--quiet")):
        done = bam_lab(*command, "--store", str(store))
        assert done.code == 2 and "numerics.json is damaged" in done.err


@pytest.mark.parametrize("how", ["cut", "noise", "gone"])
@pytest.mark.parametrize("name", ["model.safetensors", "model.json"])
def test_a_damaged_model_names_its_stage(store: Path, name: str, how: str) -> None:
    folder = next((store / "stages").glob("seed_model-*"))
    load_model(folder)
    damage(folder / "checkpoint" / name, how)
    with pytest.raises(InputError, match=f"{folder} is damaged"):
        load_model(folder)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", bytes(range(256))])
def test_a_damaged_state_to_resume_from_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / resume.NAME).write_bytes(content)
    with pytest.raises(InputError, match=r"resume\.pt is damaged.*Delete it"):
        resume.load(tmp_path)
