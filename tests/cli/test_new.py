"""`bam-lab new`: a question of the user's own, begun from one that exists."""

import errno
import io
import json

import pytest

from bam_lab.cli import new
from bam_lab.errors import InputError
from bam_lab.spec.load import load_ablation
from bam_lab.spec.reader import load
from tests.cli.command import bam_lab

LIKE = ("bam-perplexity", "bam-parallel-serial", "bam-perplexity-budgets", "lory-main")


@pytest.mark.parametrize("like", LIKE)
def test_an_ablation_is_copied_but_for_what_is_the_catalogues(tmp_path, like):
    done = bam_lab("new", "mine", "--like", like, "--to", str(tmp_path), "--json")
    assert done.code == 0, done.err
    source, mine = load_ablation(like), load_ablation(str(tmp_path / "mine.yaml"))
    assert json.loads(done.out)["arms"] == list(mine.arms)
    assert mine.arms == source.arms and mine.scale == source.scale
    assert mine.ablation.id == "mine"
    assert mine.ablation.aliases == mine.ablation.answers == ()
    kept = {key for key in load(source.path).data if key not in ("aliases", "answers")}
    assert kept == load(tmp_path / "mine.yaml").data.keys()


def test_comments_are_kept_and_each_part_says_what_can_be_changed(tmp_path):
    bam_lab("new", "mine", "--like", "bam-general-share", "--to", str(tmp_path))
    text = (tmp_path / "mine.yaml").read_text()
    source = load_ablation("bam-general-share").path.read_text()
    comments = [line for line in source.splitlines() if line.lstrip().startswith("#")]
    assert comments and all(line in text.splitlines() for line in comments)
    assert text.startswith("# mine: say here what you ask, and why.\n# Begun by `bam-lab new mine")
    assert "# The arm that all others are compared with.\nbaseline: share-10\n" in text


def test_the_commands_that_it_names_work_from_the_same_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = bam_lab("new", "mine", "--like", "bam-perplexity")
    assert "  bam-lab check mine.yaml" in done.out
    assert bam_lab("check", "mine.yaml").code == 0
    assert bam_lab("plan", "mine.yaml", "--store", str(tmp_path / "store")).code == 0


@pytest.mark.parametrize("name", ["123", "true", "null", "1e3", "0x10", "2024-01-01"])
def test_a_name_that_yaml_takes_for_a_number_is_quoted(tmp_path, name):
    done = bam_lab("new", name, "--like", "bam-perplexity", "--to", str(tmp_path))
    assert done.code == 0, done.err
    assert load_ablation(str(tmp_path / f"{name}.yaml")).ablation.id == name


def test_a_place_that_cannot_be_written_is_told_with_its_option(tmp_path):
    (tmp_path / "file").touch()
    for to in (tmp_path / "file", tmp_path / "file" / "below", "/proc/x"):
        done = bam_lab("new", "mine", "--like", "bam-perplexity", "--to", str(to))
        assert done.code == 2 and f"{to} cannot be written" in done.err
        assert "Choose another folder with --to." in done.err


def test_a_disk_that_is_full_leaves_no_half_of_a_file(tmp_path, monkeypatch):
    class Full(io.StringIO):
        def write(self, text):
            raise OSError(errno.ENOSPC, "No space left on device")

    def opened(self, *arguments, **keywords):
        self.touch()
        return Full()

    monkeypatch.setattr(new.Path, "open", opened)
    with pytest.raises(InputError, match="the disk is full"):
        new._write(tmp_path / "mine.yaml", "text")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "mine.yaml").write_text("mine")
    done = bam_lab("new", "mine", "--like", "bam-perplexity", "--to", str(tmp_path))
    assert done.code == 2 and "mine.yaml must not exist yet: nothing is overwritten" in done.err
    assert (tmp_path / "mine.yaml").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "like", "message"),
    [
        ("Mine", "bam-perplexity", "ID must be lower-case letters, digits"),
        ("a/b", "bam-perplexity", "ID must be lower-case letters, digits"),
        ("mine.yaml", "bam-perplexity", "It is the file's name without .yaml."),
        ("bam-perplexity", "lory-batches", "ID must be new, got bam-perplexity, which bam-perp"),
        ("bam-table-1", "lory-batches", "ID must be new, got bam-table-1, which bam-perplexity"),
        ("mine", "bam-perplexit", "must be an ablation's id, alias or path. Did you mean"),
        ("mine", "nowhere.yaml", "nowhere.yaml: the file must be readable"),
    ],
)
def test_what_is_refused(tmp_path, name, like, message):
    done = bam_lab("new", name, "--like", like, "--to", str(tmp_path))
    assert done.code == 2 and message in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_source_that_names_files_beside_it_leaves_nothing_behind(tmp_path, fixture_ablation):
    done = bam_lab("new", "mine", "--like", str(fixture_ablation), "--to", str(tmp_path))
    assert done.code == 2 and "scale.yaml: the file must be readable" in done.err
    assert list(tmp_path.iterdir()) == []
