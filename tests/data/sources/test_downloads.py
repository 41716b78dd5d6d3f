"""The folder of downloads, and the clients that fill it: pip, npm and apt, all played."""

import os
import subprocess
from pathlib import Path

import pytest

from bam_lab.data.sources import debian, downloads, npm, pypi
from bam_lab.errors import InputError
from bam_lab.spec.sources import DebianSource, NpmSource, PypiSource

COMMON = {"name": "prose", "extractor": "gutenberg", "licence": "CC0-1.0", "max_megabytes": 1.0}
SOURCES = {
    "pypi": PypiSource(kind="pypi", package="some-prose", version="1.2", file="wheel", **COMMON),
    "npm": NpmSource(kind="npm", package="@some/prose", version="1.2", **COMMON),
    "debian": DebianSource(kind="debian", package="some-prose", **COMMON),
}
FETCH = {"pypi": pypi.fetch, "npm": npm.fetch, "debian": debian.fetch}


@pytest.fixture
def registry(monkeypatch):
    """Play all clients: they write `files` into the folder they are run in, or say `stderr`."""

    class Registry:
        def __init__(self):
            self.calls = []
            self.files = {"prose-1.2.any": b"whole"}
            self.stderr = ""

        def __call__(self, command, cwd, **_):
            self.calls.append(command)
            for name, content in self.files.items():
                (Path(cwd) / name).write_bytes(content)
            return subprocess.CompletedProcess(command, int(bool(self.stderr)), "", self.stderr)

    played = Registry()
    monkeypatch.setattr(downloads.subprocess, "run", played)
    return played


@pytest.fixture(params=SOURCES)
def kind(request):
    return request.param


def test_a_package_is_downloaded_once(registry, kind, tmp_path):
    path = FETCH[kind](SOURCES[kind], tmp_path)
    assert path.read_bytes() == b"whole"
    assert FETCH[kind](SOURCES[kind], tmp_path) == path
    assert len(registry.calls) == 1
    registry.stderr = "no network"
    assert FETCH[kind](SOURCES[kind], tmp_path) == path


def test_what_each_client_is_asked_for(registry, tmp_path):
    for kind, source in SOURCES.items():
        FETCH[kind](source, tmp_path)
    pip, pack, apt = registry.calls
    assert {"download", "--no-deps", "some-prose==1.2"} <= set(pip)
    assert pack[:3] == ["npm", "pack", "--ignore-scripts"]
    assert pack[-1] == "@some/prose@1.2"
    assert apt[:2] == ["apt-get", "download"]
    assert apt[-1] == "some-prose"
    pinned = SOURCES["debian"].model_copy(update={"version": "1:2-3"})
    path = debian.fetch(pinned, tmp_path)
    assert registry.calls[-1][-1] == "some-prose=1:2-3"
    assert path.parent.name == "some-prose-1%3a2-3"


def test_a_download_that_breaks_off_never_looks_whole(registry, kind, tmp_path):
    """The registry goes down half-way: the second call downloads what is missing, and no more."""
    registry.files = {"prose-1.2.any": b"who"}
    registry.stderr = "ERROR: connection broken"
    with pytest.raises(
        InputError, match=r"could not be downloaded .* what is already here is kept"
    ):
        FETCH[kind](SOURCES[kind], tmp_path)
    assert list((tmp_path / kind).iterdir()) == []
    registry.files, registry.stderr = {"prose-1.2.any": b"whole"}, ""
    path = FETCH[kind](SOURCES[kind], tmp_path)
    assert path.read_bytes() == b"whole"


def test_the_next_call_goes_on(registry, tmp_path):
    FETCH["npm"](SOURCES["npm"], tmp_path)
    registry.stderr = "E: 503"
    with pytest.raises(InputError, match="could not be downloaded"):
        FETCH["debian"](SOURCES["debian"], tmp_path)
    registry.stderr = ""
    for kind in ("npm", "debian"):
        FETCH[kind](SOURCES[kind], tmp_path)
    assert [command[0] for command in registry.calls] == ["npm", "apt-get", "apt-get"]


def test_a_killed_client_leaves_nothing(monkeypatch, kind, tmp_path):
    def killed(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(downloads.subprocess, "run", killed)
    with pytest.raises(KeyboardInterrupt):
        FETCH[kind](SOURCES[kind], tmp_path)
    assert list((tmp_path / kind).iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "message"),
    [("npm", "prose needs npm .* Install Node.js"), ("debian", "prose needs apt-get .* Leave")],
)
def test_a_machine_without_the_client_is_told(monkeypatch, kind, message, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=message):
        FETCH[kind](SOURCES[kind], tmp_path)
    assert list((tmp_path / kind).iterdir()) == []


def test_another_file_than_expected_is_refused(registry, kind, tmp_path):
    source = SOURCES[kind].model_copy(update={"sha256": "0" * 64})
    with pytest.raises(InputError, match=f"{kind}/.*must have the sha256 0000.*do not trust"):
        FETCH[kind](source, tmp_path)


def test_a_client_that_brings_nothing_is_told(registry, kind, tmp_path):
    registry.files = {}
    with pytest.raises(InputError, match=f"The download {kind}/.* must hold one file, got 0"):
        FETCH[kind](SOURCES[kind], tmp_path)
    registry.files = {"prose-1.2.any": b"whole"}
    assert FETCH[kind](SOURCES[kind], tmp_path).read_bytes() == b"whole"


def test_a_faster_build_in_the_same_place_wins(tmp_path):
    def slow(folder):
        (folder / "a").write_bytes(b"mine")
        theirs = tmp_path / "pypi" / "a-1"
        theirs.mkdir()
        (theirs / "a").write_bytes(b"theirs")

    assert downloads.fetch(tmp_path, "pypi/a-1", None, slow).read_bytes() == b"theirs"
    assert os.listdir(tmp_path / "pypi") == ["a-1"]


@pytest.mark.parametrize(
    ("stderr", "reason"),
    [
        ("npm error code E404\nnpm error 404 Not Found\n", "Not Found"),
        (
            "npm error code ENOTFOUND\nnpm error syscall getaddrinfo\n"
            "npm error network request to https://user:pass@reg.local/@a/x failed, reason: "
            "getaddrinfo ENOTFOUND reg.local\nnpm error network This is a problem\n"
            "npm error A complete log of this run can be found in: /home/me/.npm/_logs/x.log\n",
            "request to its address failed, reason: getaddrinfo ENOTFOUND a host",
        ),
        (
            "npm error code ETARGET\nnpm error notarget No matching version found for a@9.0.0.\n",
            "No matching version found for a@9.0.0",
        ),
        ("W: odd\nE: Unable to locate package x\n", "Unable to locate package x"),
        (
            "E: Failed to fetch http://deb.x/x  Could not connect to 10.0.0.1:9 (10.0.0.1).\n",
            "Failed to fetch its address  Could not connect to an address (an address)",
        ),
        ("E: Could not resolve 'deb.local'\n", "Could not resolve a host"),
        (
            "ERROR: HTTPSConnectionPool(host='pypi.local', port=4)\n",
            "HTTPSConnectionPool(host=a host, port=4)",
        ),
        ("E: Could not open file /var/lib/apt/x - open\n", "Could not open file a folder - open"),
        ("", "nothing was said"),
    ],
)
def test_reasons_name_no_host_and_no_folder(stderr, reason):
    assert downloads.reason(stderr) == reason
