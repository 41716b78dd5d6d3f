"""A build that is killed goes on, and ends in the bytes of one that was not."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bam_lab.data.corpus import build as module
from bam_lab.data.corpus import piece
from tests.data.conftest import FIXTURES, silent

ROOT = Path(__file__).parents[3]

# Forks before each build, in a process without threads.
KILLED = """
import os, signal, sys
from pathlib import Path
from bam_lab.data import arrays
from bam_lab.data.corpus import build, unit
from bam_lab.spec.corpus import CorpusSpec, located
from bam_lab.spec.reader import read

fixtures, folder, kind, every = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
spec = located(read(fixtures / "corpus.yaml", CorpusSpec), fixtures)
count = 0

def die(*_):
    global count
    count += 1
    if count == limit:
        os.kill(os.getpid(), signal.SIGKILL)

def start(out, progress):
    build.build(spec, folder / "cache", out, progress, workers=1)

def dying():
    if kind == "step":
        return start(out, die)
    for place, name in ((unit.Lines, "write"), (arrays.Growing, "write_header")):
        def wrapped(*given, _inner=getattr(place, name), **named):
            die()
            return _inner(*given, **named)
        setattr(place, name, wrapped)
    start(out, lambda *_: None)

limit, killed = 1, True
while killed:
    out = folder / str(limit)
    child = os.fork()
    if child == 0:
        dying()
        os._exit(0)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert ended in (0, -signal.SIGKILL)
    killed = ended != 0
    if killed:
        start(out, lambda *_: None)
    print(out)
    limit += every
"""


def digest(folder):
    """Return a hash over names and bytes of all files below a folder."""
    total = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        total.update(f"{path.relative_to(folder)}".encode() + path.read_bytes())
    return total.hexdigest()


@pytest.mark.parametrize(("kind", "every"), [("step", 6), ("write", 53)])
def test_killed_anywhere_it_ends_in_the_same_bytes(corpus_dir, tmp_path, kind, every):
    told = subprocess.run(
        [sys.executable, "-c", KILLED, str(FIXTURES), str(tmp_path), kind, str(every)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert told.returncode == 0, told.stderr
    outs = [Path(line) for line in told.stdout.split()]
    assert len(outs) > 8
    assert {digest(out) for out in outs} == {digest(corpus_dir)}


def interrupt_at(word):
    """Return a progress that leaves at the first step whose message has the word."""

    def progress(message, done, total):
        if word in message:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize(
    ("at", "function"),
    [("cleaned 1", "documents"), ("searched 1", "without_repeats"), ("wrote", "Table")],
)
def test_what_is_done_is_not_done_again(
    corpus_spec, corpus_dir, tmp_path, monkeypatch, at, function
):
    cache, out = tmp_path / "cache", tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        module.build(corpus_spec, cache, out, interrupt_at(at), workers=1)
    place = piece.clean if function == "without_repeats" else piece
    monkeypatch.setattr(place, function, lambda *_: 1 / 0)
    module.build(corpus_spec, cache, out, silent, workers=1)
    assert digest(out) == digest(corpus_dir)


def test_what_another_corpus_left_is_not_used(corpus_spec, corpus_dir, tmp_path):
    cleaning = corpus_spec.cleaning.model_copy(update={"min_characters": 150})
    other = corpus_spec.model_copy(update={"cleaning": cleaning})
    with pytest.raises(KeyboardInterrupt):
        module.build(other, tmp_path / "cache", tmp_path / "out", interrupt_at("wrote"), workers=1)
    module.build(corpus_spec, tmp_path / "cache", tmp_path / "out", silent, workers=1)
    assert digest(tmp_path / "out") == digest(corpus_dir)


COMMAND = """
import sys
from bam_lab.cli.main import main
if __name__ == "__main__":
    sys.argv = ["bam-lab", *sys.argv[1:]]
    main()
"""


def test_two_builds_at_once_in_one_place_make_one_corpus(corpus_dir, tmp_path):
    fixture = str(FIXTURES / "corpus.yaml")
    command = [sys.executable, "-c", COMMAND, "data", "build", fixture, "--quiet"]
    started = [
        subprocess.Popen(
            [*command, "--store", str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=120) for process in started]
    assert [process.returncode for process in started] == [0, 0], outputs
    assert outputs[0][0] == outputs[1][0]
    (stage,) = (tmp_path / "stages").iterdir()
    for path in corpus_dir.glob("*.jsonl"):
        assert (stage / path.name).read_bytes() == path.read_bytes()
    assert not (stage / ".build").exists()
