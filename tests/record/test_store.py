"""The store: nothing half-written is ever read, nothing leaves it."""

import errno
import json
from pathlib import Path

import pytest

from bam_lab.errors import InputError
from bam_lab.record import files
from bam_lab.record.store import Store, stage_key, store_root

KEY = "mixture-0123456789abcdef"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    store.prepare()
    return store


def test_published_stage_has_its_files_and_done(store: Store) -> None:
    work = store.open_work(KEY)
    (work / "checkpoint").mkdir()
    (work / "checkpoint" / "weights").write_bytes(b"1")
    assert not store.is_done(KEY) and store.done_keys() == []
    store.write_failure(KEY, {"reason": "before"})
    store.publish(KEY)
    assert store.is_done(KEY) and store.done_keys() == [KEY]
    assert (store.stage(KEY) / "checkpoint" / "weights").read_bytes() == b"1"
    assert not work.exists() and store.failure(KEY) is None


def test_crash_before_done_is_resumed_not_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    (store.open_work(KEY) / "checkpoint").write_text("kept")

    def crash(path: Path, text: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("bam_lab.record.store.write_text", crash)
        store.publish(KEY)
    assert store.stage(KEY).exists() and not store.is_done(KEY) and store.done_keys() == []
    assert (store.open_work(KEY) / "checkpoint").read_text() == "kept"
    assert not store.stage(KEY).exists()
    store.publish(KEY)
    assert store.is_done(KEY)


@pytest.mark.parametrize("key", ["../other", "a/b", "..", "", ".hidden", "a..b", "/etc", "A B"])
def test_id_that_leaves_the_store_is_refused(store: Store, key: str) -> None:
    for place in (store.stage, store.work, store.ablation):
        with pytest.raises(InputError, match="must be a plain name of the store"):
            place(key)


def test_store_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file.* cannot be written: a file is where a folder"):
        Store(tmp_path / "file" / "store").prepare()


def test_full_disk_is_told_and_leaves_the_old_file(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = store.root / "x.json"
    files.write_json(path, {"old": 1})

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(InputError, match=r"x\.json cannot be written: the disk is full"):
            files.write_json(path, {"new": 1})
    assert json.loads(path.read_text()) == {"old": 1}
    assert list(store.root.glob(".x*")) == []


def test_a_store_behind_a_symbolic_link_to_itself_is_told(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InputError, match="a symbolic link leads back to itself"):
        Store(tmp_path / "loop").prepare()


def test_a_folder_where_a_file_should_be_is_told(store: Store) -> None:
    (store.root / "report.html").mkdir()
    with pytest.raises(InputError, match=r"/report\.html cannot be written: a folder is"):
        files.write_text(store.root / "report.html", "text")


def test_a_damaged_failure_is_told(store: Store) -> None:
    (store.root / "failures" / f"{KEY}.json").write_text('{"reason": "the lo')
    with pytest.raises(InputError, match=rf"{KEY}\.json is damaged.*Delete it"):
        store.failure(KEY)


def test_other_disk_errors_keep_their_traceback(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Input/output"), files.explained(tmp_path):
        raise OSError(errno.EIO, "Input/output error")


def test_store_root_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAM_LAB_STORE", "/from/variable")
    assert store_root(Path("/option")) == Path("/option")
    assert store_root(None) == Path("/from/variable")
    monkeypatch.delenv("BAM_LAB_STORE")
    assert store_root(None) == Path(".bam-lab")


def test_stage_key_is_16_digits() -> None:
    assert stage_key("expert", "0123456789abcdef0123") == "expert-0123456789abcdef"
