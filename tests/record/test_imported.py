"""Import: all is verified before anything is written; what is not ours is refused in words."""

import hashlib
import json
import shutil
import zipfile
from pathlib import Path

import pytest

from bam_lab.cost.time import pace
from bam_lab.errors import InputError
from bam_lab.record import imported as importing
from bam_lab.record import numerics
from bam_lab.record.export import CONTENTS, export
from bam_lab.record.fingerprint import fingerprint
from bam_lab.record.imported import import_results
from bam_lab.record.lease import acquire
from bam_lab.record.store import Store, stage_key
from tests.record.small_store import ABLATION, small_store


@pytest.fixture
def there(tmp_path: Path) -> tuple[Store, dict[str, str], Path]:
    """Return a store elsewhere, its stages, and the file that it exported."""
    store, made = small_store(tmp_path / "there")
    return store, made, export(store, ABLATION, tmp_path / "small.zip").path


def changed(path: Path, change, sign: bool = False) -> Path:
    """Rewrite an exported file after `change(files, contents)`; `sign` mends the hashes too."""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    contents = json.loads(files.pop(CONTENTS))
    change(files, contents)
    if sign:
        contents["files"] = {n: hashlib.sha256(d).hexdigest() for n, d in files.items()}
    out = path.with_name("changed.zip")
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in {CONTENTS: json.dumps(contents).encode(), **files}.items():
            archive.writestr(name, data)
    return out


def respec(key: str, files: dict, **change) -> None:
    """Change a stage's spec.json and give the stage the name that the change makes."""
    spec = json.loads(files[f"stages/{key}/spec.json"]) | change
    made = fingerprint({name: spec[name] for name in ("stage", "spec", "inputs", "revision")})
    for name in [name for name in files if key in name]:
        files[name.replace(key, stage_key(spec["stage"], made))] = files.pop(name)
    files[f"stages/{stage_key(spec['stage'], made)}/spec.json"] = json.dumps(spec).encode()


def test_a_store_takes_what_another_exported(there, tmp_path: Path) -> None:
    store, made, path = there
    here = Store(tmp_path / "here")
    found = import_results(here, path)
    assert set(found.stages) == set(here.done_keys()) == set(store.done_keys())
    assert found.kept == found.differing == ()
    assert here.left_out(made["mixture"]) == ["checkpoint"]
    assert not here.is_whole(made["mixture"]) and here.is_whole(made["evaluate"])
    assert numerics.stored(here) == numerics.stored(store)
    for name in ("spec.json", "manifest.json", "ledger.json", "metrics.jsonl"):
        ours, theirs = (s.stage(made["mixture"]) / name for s in (here, store))
        assert ours.read_bytes() == theirs.read_bytes()
    assert list((here.root / "imports").iterdir()) == list((here.root / "work").iterdir()) == []
    again = import_results(here, path)
    assert again.stages == () and set(again.kept) == set(found.stages)
    assert again.lacking == {} and again.differing == ()


def test_what_was_imported_can_be_exported_again(there, tmp_path: Path) -> None:
    _, _, path = there
    here = Store(tmp_path / "here")
    import_results(here, path)
    onward = export(here, ABLATION, tmp_path / "onward.zip")
    assert onward.path.read_bytes() == path.read_bytes()


def test_other_machines_times_are_not_this_ones(there, tmp_path: Path) -> None:
    store, _, path = there
    here = Store(tmp_path / "here")
    import_results(here, path)
    assert pace(store).measured and pace(here).measured == ()


def test_done_stages_stay_and_other_numbers_are_told(there, tmp_path: Path) -> None:
    _, made, path = there
    here, _ = small_store(tmp_path / "here")
    (here.stage(made["evaluate"]) / "scores.csv").write_text("kind,value\nheldout,2.6\n")
    found = import_results(here, path)
    assert found.stages == () and found.differing == (made["evaluate"],)
    assert "2.6" in (here.stage(made["evaluate"]) / "scores.csv").read_text()
    assert here.is_whole(made["mixture"])


@pytest.mark.parametrize("replicates", [1, 5])
def test_the_index_with_more_replicates_stays(there, tmp_path: Path, replicates: int) -> None:
    store, _, _ = there
    index = store.ablation(ABLATION) / "index.json"
    index.write_text(json.dumps(json.loads(index.read_text()) | {"replicates": 3}))
    path = export(store, ABLATION, tmp_path / "three.zip").path
    here, _ = small_store(tmp_path / "here")
    ours = here.ablation(ABLATION) / "index.json"
    ours.write_text(json.dumps(json.loads(ours.read_text()) | {"replicates": replicates}))
    import_results(here, path)
    assert json.loads(ours.read_text())["replicates"] == max(3, replicates)


def _flip(files, contents):
    name = next(name for name in files if name.endswith("scores.csv"))
    files[name] = files[name].replace(b"2.5", b"2.4")


def _drop(files, contents):
    del files[next(name for name in files if name.endswith("ledger.json"))]


def _sneak(files, contents):
    files["stages/mixture-0123456789abcdef/weights.pt"] = b""


def _escape(files, contents):
    files["stages/../../evil/spec.json"] = b"{}"


def _older(files, contents):
    contents["format"] = 0


def _respec(files, contents):
    name = next(name for name in files if name.startswith("stages/mixture") and "spec" in name)
    files[name] = files[name].replace(b'"steps": 3', b'"steps": 4')


def _revise(files, contents):
    key = next(name for name in files if name.startswith("stages/mixture")).split("/")[1]
    respec(key, files, revision=0)


def _other_numerics(files, contents):
    name = next(name for name in files if name.startswith("stages/mixture") and "manif" in name)
    files[name] = files[name].replace(b"float32", b"bf16-mixed")


def _no_index(files, contents):
    files[f"ablations/{ABLATION}/index.json"] = b"[]"


def _no_names(files, contents):
    files[f"ablations/{ABLATION}/index.json"] = b'{"stages": []}'


def _deep_index(files, contents):
    files[f"ablations/{ABLATION}/index.json"] = b"[" * 100_000


def _deep_spec(files, contents):
    files[next(name for name in files if name.endswith("spec.json"))] = b"[" * 100_000


def _renamed(to):
    """Return a change that gives the ablation another name, in all places."""

    def change(files, contents):
        contents["ablation"] = to
        files[f"ablations/{to}/index.json"] = files.pop(f"ablations/{ABLATION}/index.json")

    return change


def _cut_manifest(files, contents):
    name = next(name for name in files if name.endswith("manifest.json"))
    files[name] = b"{"


@pytest.mark.parametrize(
    ("change", "sign", "message"),
    [
        (_flip, False, r"scores\.csv was changed since the export\. Fetch"),
        (_drop, False, r"ledger\.json was taken out since the export"),
        (_sneak, False, r"weights\.pt was added since the export"),
        (_sneak, True, r"weights\.pt must be no part of an export"),
        (_escape, True, r"evil/spec\.json must be no part of an export"),
        (_older, False, r"must have format 1, got 0\. Export it again with this version"),
        (_respec, True, r"stages/mixture-\w+ must be what its spec\.json says"),
        (_revise, True, r"must have revision 1 of mixture, got 0: another version of bam-lab"),
        (_other_numerics, True, r"numerics of the whole file, got bf16-mixed on cpu"),
        (_no_index, True, r"index\.json must list the stages"),
        (_no_names, True, r"index\.json must list the stages"),
        (_deep_index, True, r"index\.json must list the stages"),
        (_deep_spec, True, r"is damaged \(RecursionError"),
        (_renamed("../../evil"), True, r"must name an ablation of a store, got '\.\./\.\./evil'"),
        (_renamed(".."), True, r"must name an ablation of a store, got '\.\.'"),
        (_renamed("a/b"), True, r"must name an ablation of a store, got 'a/b'"),
        (_renamed(""), True, r"must name an ablation of a store, got ''"),
        (_cut_manifest, True, r"is damaged \(JSONDecodeError"),
    ],
)
def test_changed_files_are_refused_and_nothing_is_written(
    there, tmp_path: Path, change, sign: bool, message: str
) -> None:
    here = Store(tmp_path / "here")
    with pytest.raises(InputError, match=message):
        import_results(here, changed(there[2], change, sign))
    assert not here.root.exists()


def test_a_file_packed_anew_is_told_by_its_sha256(there, tmp_path: Path) -> None:
    """Who mends all hashes of a changed score is found out by the SHA-256 that export printed."""
    before = hashlib.sha256(there[2].read_bytes()).hexdigest()
    path = changed(there[2], _flip, sign=True)
    with pytest.raises(InputError, match=rf"must have the SHA-256 {before}, got "):
        import_results(Store(tmp_path / "here"), path, before)
    assert import_results(Store(tmp_path / "here"), there[2], before.upper()).stages


def test_other_things_than_exports_are_refused(there, tmp_path: Path) -> None:
    here, path = Store(tmp_path / "here"), tmp_path / "other.zip"
    with pytest.raises(InputError, match=r"must be readable, got: No such file"):
        import_results(here, path)
    path.write_text("no zip")
    with pytest.raises(InputError, match=r"must be a file that `bam-lab export` wrote"):
        import_results(here, path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(InputError, match=r"must be a file that `bam-lab export` wrote"):
        import_results(here, path)
    path.write_bytes(there[2].read_bytes()[:-200])
    with pytest.raises(InputError, match=r"damaged or something else"):
        import_results(here, path)
    locked = bytearray(there[2].read_bytes())
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # the flags: it has a password
        locked[locked.find(mark) + place] |= 1
    path.write_bytes(locked)
    with pytest.raises(InputError, match=r"damaged or something else \(RuntimeError"):
        import_results(here, path)
    whole = bytearray(there[2].read_bytes())
    whole[len(whole) // 3] ^= 0xFF
    path.write_bytes(whole)
    with pytest.raises(InputError, match=r"damaged or something else|was changed since"):
        import_results(here, path)
    assert not here.root.exists()


def test_what_unpacks_to_too_much_is_not_unpacked(
    there, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "MAX_BYTES", 100)
    with pytest.raises(InputError, match=r"must unpack to under 2 GB"):
        import_results(Store(tmp_path / "here"), there[2])


def test_stores_of_other_numerics_are_left_alone(there, tmp_path: Path) -> None:
    here, _ = small_store(tmp_path / "here", {"precision": "bf16-mixed", "device": "cpu"})
    shutil.rmtree(here.root / "stages")
    with pytest.raises(InputError, match=r"must have the numerics .*bf16-mixed.* got float32"):
        import_results(here, there[2])
    assert here.done_keys() == []


def test_a_stage_that_somebody_works_at_is_waited_for(there, tmp_path: Path) -> None:
    here = Store(tmp_path / "here")
    here.prepare()
    lease = acquire(here, there[1]["mixture"])
    assert lease is not None
    with pytest.raises(InputError, match=r"must be at rest, got process \d+.*import again"):
        import_results(here, there[2])
    assert here.done_keys() == []
    lease.release()
    assert import_results(here, there[2]).stages


def test_a_crash_leaves_whole_stages_and_the_next_import_goes_on(
    there, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, bring, count = Store(tmp_path / "here"), importing._bring, [0]

    def crash(*arguments):
        count[0] += 1
        if count[0] == 3:
            raise KeyboardInterrupt
        bring(*arguments)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(importing, "_bring", crash)
        import_results(here, there[2])
    assert len(here.done_keys()) == 2 and not (here.ablation(ABLATION) / "index.json").exists()
    found = import_results(here, there[2])
    assert len(found.stages) == 2 and len(here.done_keys()) == 4


def test_what_is_made_again_takes_the_place_of_what_was_imported(there, tmp_path: Path) -> None:
    here, made = Store(tmp_path / "here"), there[1]
    import_results(here, there[2])
    work = here.open_work(made["mixture"])
    (work / "checkpoint").mkdir()
    shutil.copy(here.stage(made["mixture"]) / "manifest.json", work)
    assert here.is_done(made["mixture"])  # what came stays until the new one is there
    here.publish(made["mixture"])
    assert here.is_whole(made["mixture"])
    assert {p.name for p in here.stage(made["mixture"]).iterdir()} == {
        "DONE",
        "checkpoint",
        "manifest.json",
    }
    assert list((here.root / "work").iterdir()) == []


def test_text_that_is_made_again_must_be_the_same(there, tmp_path: Path) -> None:
    here, made = Store(tmp_path / "here"), there[1]
    import_results(here, there[2])
    work = here.open_work(made["corpus"])
    (work / "manifest.json").write_text('{"facts": {"digest": "other"}}')
    with pytest.raises(InputError, match=r"got other text when it was made again here"):
        here.publish(made["corpus"])
    assert here.left_out(made["corpus"]) == ["law.train.jsonl"]
    (work / "manifest.json").write_text('{"facts": {"digest": "c"}}')
    here.publish(made["corpus"])
    assert here.is_whole(made["corpus"])
