"""`bam-lab data add`, `list`, `remove`, and `--domain`: text of one's own."""

import json
import random
from pathlib import Path

import pytest

from bam_lab.data.corpus.inspect import hold_out
from bam_lab.spec.corpus import DomainSource, HoldOut
from bam_lab.spec.reader import read
from tests.cli.command import Done, bam_lab

ABLATION = str(Path(__file__).parents[1] / "fixtures" / "ablation.yaml")
CORPUS = str(Path(__file__).parents[1] / "fixtures" / "corpus.yaml")
WORDS = ["sea", "moon", "stone", "river", "bird", "light", "shadow", "winter", "hill", "foam"]


def write_poems(path: Path, count: int = 60, field: str = "text") -> Path:
    """Write poems that no filter drops, and one that is too short."""
    chance = random.Random(0)
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{field: " ".join(chance.choices(WORDS, k=60)) + f" {n}"} for n in range(count)]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in [*rows, {field: "short"}]))
    return path


@pytest.fixture
def poems(tmp_path):
    return write_poems(tmp_path / "mine" / "poems.jsonl")


@pytest.fixture
def add(tmp_path):
    """Return a function that adds a domain to the store of this test."""

    def run(*arguments: str) -> Done:
        return bam_lab("data", "add", *arguments, "--store", str(tmp_path / "store"))

    return run


def test_says_what_is_there_and_what_it_chose(add, poems, tmp_path):
    done = add("poems", str(poems), "--licence", "CC0-1.0", "--title", "poems of words")
    assert done.code == 0, done.err
    assert "60 documents" in done.out
    assert "1 shorter than 200 characters" in done.out
    assert "20.0% for the test" in done.out
    assert "about 12 documents each" in done.out
    made = read(tmp_path / "store" / "domains" / "poems.yaml", DomainSource)
    assert made.title == "poems of words"
    assert made.hold_out == HoldOut(valid=0.2, test=0.2, min_documents=6, min_megabytes=0.3)
    assert made.sources[0].licence == "CC0-1.0"


@pytest.mark.parametrize(
    ("documents", "megabytes", "share"),
    [(1e6, 4000.0, 0.05), (10_000, 3.0, 0.05), (1000, 3.0, 0.15), (2250, 1.0, 0.2)],
)
def test_enough_is_held_out_where_there_is_enough(documents, megabytes, share):
    chosen = hold_out(documents, megabytes)
    assert (chosen.valid, chosen.test) == (share, share)
    assert (chosen.min_documents, chosen.min_megabytes) == (300, 0.3)


def test_any_kind_of_path(add, poems, tmp_path):
    folder = poems.parent
    (folder / "[a] b.jsonl").write_text(poems.read_text())
    for name, path in [
        ("folder", str(folder)),
        ("pattern", f"{folder}/p*.jsonl"),
        ("deep", f"{tmp_path}/**/poe?s.jsonl"),
        ("brackets", f"{folder}/[a] b.jsonl"),
    ]:
        done = add(name, path, "--json")
        assert done.code == 0, (name, done.err)
        assert json.loads(done.out)["documents"] == 60, name


def test_files_of_other_kinds_are_left_out_and_told(add, poems):
    (poems.parent / "scan.pdf").write_bytes(b"%PDF\0")
    done = add("poems", str(poems.parent))
    assert done.code == 0
    assert "1 .pdf" in done.out


def test_a_data_set_saved_to_disk(add, tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = map(json.loads, write_poems(tmp_path / "poems.jsonl").read_text().splitlines())
    saved = tmp_path / "saved"
    datasets.Dataset.from_list([{"poem": row["text"]} for row in rows]).save_to_disk(str(saved))
    refused = add("poems", str(saved))
    assert refused.code == 2
    assert "has 'poem'" in refused.err and "--text-field" in refused.err
    done = add("poems", str(saved), "--text-field", "poem")
    assert done.code == 0
    assert "60 documents" in done.out


def test_a_relative_path_means_the_same_anywhere(add, poems, tmp_path, monkeypatch):
    monkeypatch.chdir(poems.parent)
    add("poems", "poems.jsonl")
    made = read(tmp_path / "store" / "domains" / "poems.yaml", DomainSource)
    assert made.sources[0].folder == str(poems.parent.resolve())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["law", "POEMS"], "is a domain of configs/corpus/"),
        (["seed_model", "POEMS"], "must not be the name of another dense model"),
        (["code.1of2", "POEMS"], "must not be the name of another dense model"),
        (["../up", "POEMS"], "must be a name of small letters"),
        (["Poems", "POEMS"], "must be a name of small letters"),
        (["poems", "nothing-here"], "nothing there"),
        (["poems", "nowhere/*.jsonl"], "nothing there"),
        (["poems", "POEMS", "--text-field", "body"], "body"),
        (["poems", "POEMS", "--max-megabytes", "inf"], "--max-megabytes must be a finite number"),
        (["poems", "POEMS", "--title", "a\x1b[2J"], "--title must be one line of printable text"),
        (["poems", "POEMS", "--licence", " "], "--licence must be one line of printable text"),
    ],
)
def test_what_cannot_be_added(add, poems, tmp_path, arguments, message):
    done = add(*(str(poems) if text == "POEMS" else text for text in arguments))
    assert done.code == 2
    assert message in done.err
    assert not list((tmp_path / "store").glob("domains/*"))


def test_too_few_documents_are_refused(add, tmp_path):
    done = add("poems", str(write_poems(tmp_path / "few.jsonl", 19)))
    assert done.code == 2
    assert "must hold at least 20 documents" in done.err
    assert "1 shorter than 200 characters" in done.err


def test_broken_lines_are_counted_and_too_many_refused(add, tmp_path):
    path = write_poems(tmp_path / "poems.jsonl", 300)
    text = path.read_text()
    path.write_text(text + "{no json\n")
    done = add("poems", str(path))
    assert done.code == 0
    assert "1 of 302 entries are broken" in done.out
    assert "poems.jsonl:302" in done.out
    path.write_text(text + "{no json\n" * 4)
    done = add("poems", str(path))
    assert done.code == 2
    assert "at most 1% of the entries may be broken, got 4 of 305" in done.err


def test_a_field_that_is_not_there_leads_to_the_option(add, tmp_path):
    done = add("poems", str(write_poems(tmp_path / "poems.jsonl", field="body")))
    assert done.code == 2
    assert "must have the field 'text', has 'body'" in done.err
    assert "--text-field" in done.err


def test_control_characters_are_told(add, tmp_path):
    path = write_poems(tmp_path / "poems.jsonl")
    path.write_text(path.read_text().replace(' 1"', ' \\u001b1"').replace(' 7"', ' \\u00007"'))
    done = add("poems", str(path))
    assert done.code == 0, done.err
    assert "Control characters were taken out of 2 documents." in done.out


def test_an_empty_folder_is_refused(add, tmp_path):
    (tmp_path / "nothing").mkdir()
    assert add("poems", str(tmp_path / "nothing")).code == 2


def test_another_path_under_a_taken_name_needs_replace(add, poems, tmp_path):
    add("poems", str(poems))
    assert add("poems", str(poems), "--title", "again").code == 0
    other = str(write_poems(tmp_path / "other.jsonl", 40))
    refused = add("poems", other)
    assert refused.code == 2
    assert "--replace" in refused.err
    assert add("poems", other, "--replace").code == 0
    made = read(tmp_path / "store" / "domains" / "poems.yaml", DomainSource)
    assert made.sources[0].pattern == "other.jsonl"


def test_listed_and_removed(add, poems, tmp_path):
    store = ("--store", str(tmp_path / "store"))
    assert "No domain of your own" in bam_lab("data", "list", *store).out
    add("poems", str(poems), "--licence", "[bold]mine[/nothing]")
    shown = bam_lab("data", "list", *store)
    assert "poems" in shown.out and "[bold]mine[/nothing]" in shown.out
    assert "general, code, law, math" in shown.out
    listed = json.loads(bam_lab("data", "list", "--json", *store).out)
    assert [entry["name"] for entry in listed["domains"]] == ["poems"]
    assert bam_lab("data", "remove", "poems", *store).code == 0
    assert poems.is_file()
    again = bam_lab("data", "remove", "poems", *store)
    assert again.code == 2
    assert "There are none." in again.err


def test_a_run_takes_it(add, poems, tmp_path):
    store = ("--store", str(tmp_path / "store"))
    add("poems", str(poems))
    planned = json.loads(bam_lab("plan", ABLATION, "--domain", "poems", "--json", *store).out)
    assert planned["added"] == ["poems"]
    assert planned["models"]["btx"]["num_experts"] == 5
    assert "expert poems r0" in [stage["label"] for stage in planned["stages"]]
    assert bam_lab("check", ABLATION, "--domain", "poems", *store).code == 0
    built = bam_lab("data", "build", CORPUS, "--domain", "poems", "--quiet", *store)
    assert built.code == 0, built.err
    assert "poems" in built.out
    missing = bam_lab("data", "show", CORPUS, *store)
    assert missing.code == 2
    shown = bam_lab("data", "show", CORPUS, "--domain", "poems", "--json", *store)
    assert "poems" in json.loads(shown.out)["crossed"]["bits_per_byte"]


def test_a_domain_that_is_not_there_is_said(add, poems, tmp_path):
    store = ("--store", str(tmp_path / "store"))
    add("poems", str(poems))
    for verb in ("plan", "run", "reproduce", "prepare", "report", "check"):
        done = bam_lab(verb, ABLATION, "--domain", "poem", *store)
        assert done.code == 2, verb
        assert "Did you mean `poems`?" in done.err, verb
    twice = bam_lab("plan", ABLATION, "--domain", "poems", "--domain", "poems", *store)
    assert "must name each domain once" in twice.err


def test_options_without_effect_are_errors(add, poems, tmp_path):
    store = ("--store", str(tmp_path / "store"))
    add("poems", str(poems))
    assert "--domain must stand with" in bam_lab("check", CORPUS, "--domain", "poems", *store).err
    assert "--store must stand with" in bam_lab("check", ABLATION, *store).err


def test_a_damaged_file_is_said_with_its_place(add, poems, tmp_path):
    store = ("--store", str(tmp_path / "store"))
    add("poems", str(poems))
    (tmp_path / "store" / "domains" / "poems.yaml").write_text("title: [\n")
    done = bam_lab("plan", ABLATION, "--domain", "poems", *store)
    assert done.code == 2
    assert "poems.yaml:" in done.err
