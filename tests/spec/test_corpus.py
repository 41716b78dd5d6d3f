"""The corpus's vocabulary: what it refuses, and what its identity covers."""

from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from bam_lab import resources
from bam_lab.errors import SpecError
from bam_lab.record.fingerprint import fingerprint
from bam_lab.spec.corpus import CorpusSpec, held_out_only, identity, located
from bam_lab.spec.reader import read
from bam_lab.spec.sources import FilesSource, PypiSource, Source

FIXTURE = Path(__file__).parents[1] / "fixtures" / "corpus.yaml"
DEFAULT = resources.folder("configs") / "corpus" / "default.yaml"


def changed(tmp_path, old, new, base=FIXTURE):
    text = base.read_text()
    assert old in text
    path = tmp_path / "corpus.yaml"
    path.write_text(text.replace(old, new, 1))
    return path


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("kind: files, name: tales", "kind: file, name: tales", "kind"),
        ("name: places", "name: tales", "source names must differ, got tales"),
        ("{valid: 0.15, test: 0.2", "{valid: 0.5, test: 0.6", "more than 0 and at most 1"),
        ("{valid: 0.15, test: 0.2", "{valid: 0.0, test: 0.0", "more than 0"),
        ("{valid: 0.15, test: 0.2", "{valid: 0.2, test: 0.0", "test must be above 0"),
        ("{valid: 0.15, test: 0.2", "{valid: 1.0, test: 0.0", "test must be above 0"),
        ("{valid: 0.15, test: 0.2", "{valid: 0.5, test: 0.5", "general must name a domain that is"),
        ("min_characters: 100", "min_characters: 10001", "min_characters must be at most"),
        ("min_megabytes: 0.008", "min_megabytes: 2.0", "min_megabytes must be at most"),
        ("min_ascii_share: 0.9", "min_ascii_share: 1.9", "min_ascii_share must be <= 1"),
        ("schema: 1", "schema: 2", "Upgrade"),
        ("folder: corpus, ", "", "folder must be given"),
        ("cleaning:", "cleanin:", "Did you mean `cleaning`"),
    ],
)
def test_refuses(tmp_path, old, new, message):
    with pytest.raises(SpecError, match=message):
        read(changed(tmp_path, old, new), CorpusSpec)


def test_refuses_a_domain_without_sources(tmp_path):
    text = FIXTURE.read_text()
    start = text.index("      - {kind: files, name: exercises")
    path = tmp_path / "corpus.yaml"
    path.write_text(text[:start].rstrip().removesuffix("sources:") + "sources: []\n")
    with pytest.raises(SpecError, match=r"corpus.yaml:\d+:\d+: domains.math .*at least one source"):
        read(path, CorpusSpec)


def test_refuses_the_generator_of_test_items(tmp_path):
    path = changed(tmp_path, "[basic_arithmetic,", "[gsm_symbolic,", base=DEFAULT)
    with pytest.raises(SpecError, match="gsm_symbolic"):
        read(path, CorpusSpec)


def test_identity_leaves_out_where_files_lie_and_nothing_else():
    spec = read(FIXTURE, CorpusSpec)
    here, there = located(spec, Path("/a")), located(spec, Path("/b"))
    assert here != there
    assert identity(here) == identity(there)
    other = spec.cleaning.model_copy(update={"min_characters": 7})
    assert fingerprint(identity(spec.model_copy(update={"cleaning": other}))) != fingerprint(
        identity(spec)
    )


def test_located_makes_folders_absolute():
    for domain in located(read(FIXTURE, CorpusSpec), FIXTURE.parent).domains.values():
        for source in domain.sources:
            assert isinstance(source, FilesSource)
            assert Path(source.folder).is_absolute()


def test_default_needs_only_pypi_and_pins_what_it_reads():
    spec = read(DEFAULT, CorpusSpec)
    assert set(spec.domains) == {"general", "code", "law", "math", "web"}
    assert held_out_only(spec) == ("web",)
    sources = [source for domain in spec.domains.values() for source in domain.sources]
    assert {source.kind for source in sources} == {"pypi", "generator"}
    assert all(source.licence for source in sources)
    assert all(source.sha256 for source in sources if isinstance(source, PypiSource))


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("pypi", {"version": "1/../../x"}),
        ("pypi", {"version": "--index-url"}),
        ("npm", {"package": "../x"}),
        ("npm", {"package": "-x"}),
        ("debian", {"package": "a/b"}),
        ("debian", {"version": "1 2"}),
        ("huggingface", {"files": "../*.parquet"}),
        ("huggingface", {"files": "/etc/*.parquet"}),
        ("huggingface", {"files": "a.parquet", "subset": "b"}),
    ],
)
def test_refuses_names_that_leave_their_place(kind, changes):
    values = {"kind": kind, "name": "a", "licence": "MIT", "max_megabytes": 1.0}
    if kind == "huggingface":
        values |= {"dataset": "a/b", "max_documents": 1}
    else:
        values |= {"package": "ab", "version": "1:2.0+b~c-1", "extractor": "gutenberg"}
    if kind == "pypi":
        values["file"] = "wheel"
    adapter = TypeAdapter(Source)
    adapter.validate_python(values)
    with pytest.raises(ValidationError):
        adapter.validate_python({**values, **changes})
