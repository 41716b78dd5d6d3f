"""Export: what travels is small and enough for a report; weights and text stay."""

import ast
import hashlib
import json
import zipfile
from pathlib import Path

import pytest

from bam_lab.errors import InputError
from bam_lab.record import export as exporting
from bam_lab.record.export import CONTENTS, SMALL, export
from bam_lab.record.files import sha256
from tests.record.small_store import ABLATION, WEIGHTS, small_store

REPORT = Path(exporting.__file__).parents[1] / "report"


def test_small_results_are_in_and_weights_and_text_are_not(tmp_path: Path) -> None:
    store, made = small_store(tmp_path / "store")
    done = export(store, ABLATION, tmp_path / "small.zip")
    assert (done.stages, done.missing) == (4, 1)
    assert done.sha256 == sha256(done.path) and done.bytes == done.path.stat().st_size
    with zipfile.ZipFile(done.path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    whole = b"".join(files.values())
    assert WEIGHTS not in whole and b"secret words" not in whole
    assert files[f"stages/{made['evaluate']}/scores.csv"] == b"kind,value\nheldout,2.5\n"
    assert f"stages/{made['mixture']}/ledger.json" in files
    assert f"ablations/{ABLATION}/index.json" in files
    contents = json.loads(files.pop(CONTENTS))
    assert contents["files"] == {n: hashlib.sha256(d).hexdigest() for n, d in files.items()}
    assert contents["left_out"] == {
        made["corpus"]: ["law.train.jsonl"],
        made["tokenizer"]: ["tokenizer", "tokens"],
        made["mixture"]: ["checkpoint"],
    }


def test_the_same_results_give_the_same_bytes(tmp_path: Path) -> None:
    one, two = (small_store(tmp_path / name)[0] for name in ("a", "b"))
    first, second = export(one, ABLATION, tmp_path / "1"), export(two, ABLATION, tmp_path / "2")
    assert first.sha256 == second.sha256


def test_all_that_a_report_reads_travels() -> None:
    """Every file name that stands in the code that collects a report is one that is packed."""
    read = set()
    for name in ("collect.py", "cells.py", "noise.py"):
        for node in ast.walk(ast.parse((REPORT / name).read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                read |= {node.value} if node.value.endswith((".json", ".jsonl", ".csv")) else set()
    assert len(read) >= 5
    assert read <= {*SMALL, "results.json"}, "add it to SMALL"


def test_bad_exports_say_what_to_do(tmp_path: Path) -> None:
    store, made = small_store(tmp_path / "store")
    with pytest.raises(InputError, match=r"nothing of this ablation is in the store.*bam-lab run"):
        export(store, "other-nano", tmp_path / "x.zip")
    (tmp_path / "there.zip").touch()
    with pytest.raises(InputError, match=r"must not be there yet"):
        export(store, ABLATION, tmp_path / "there.zip")
    with pytest.raises(InputError, match=r"must be a folder, got none"):
        export(store, ABLATION, tmp_path / "none" / "x.zip")
    (tmp_path / "loose.zip").symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"loose\.zip must not be there yet"):
        export(store, ABLATION, tmp_path / "loose.zip")
    with pytest.raises(InputError, match=r"a file is where a folder should be.*with --to"):
        export(store, ABLATION, tmp_path / "there.zip" / "x.zip")
    index = store.ablation(ABLATION) / "index.json"
    whole = index.read_text()
    index.write_text('{"stages": [{"key": 5}]}')
    with pytest.raises(InputError, match=r"index\.json is damaged \(TypeError"):
        export(store, ABLATION, tmp_path / "x.zip")
    index.write_text(whole)
    (store.stage(made["mixture"]) / "manifest.json").unlink()
    with pytest.raises(InputError, match=r"is damaged .*manifest.json is missing"):
        export(store, ABLATION, tmp_path / "x.zip")
    for key in store.done_keys():
        (store.stage(key) / "DONE").unlink()
    with pytest.raises(InputError, match=r"must have a finished stage to export, got none"):
        export(store, ABLATION, tmp_path / "x.zip")
    assert not (tmp_path / "x.zip").exists()
