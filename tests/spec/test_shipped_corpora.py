"""Every corpus in configs/corpus: what a reader may count on without building it."""

import pytest

from bam_lab import resources
from bam_lab.spec.corpus import CorpusSpec, held_out_only, sources_of
from bam_lab.spec.reader import read
from bam_lab.spec.sources import GeneratorSource, HubSource, NpmSource, PypiSource

FOLDER = resources.folder("configs") / "corpus"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))


def corpus(name):
    return read(FOLDER / f"{name}.yaml", CorpusSpec)


def by_name(spec):
    return {source.name: source for source in sources_of(spec)}


def test_which_corpora_there_are():
    assert NAMES == ["default", "eight-domains", "full", "papers"]


@pytest.mark.parametrize("name", NAMES)
def test_each_corpus(name):
    spec = corpus(name)
    assert held_out_only(spec) == ("web",)
    # Contamination is counted for the same items everywhere.
    assert spec.evaluation == corpus("default").evaluation
    for domain in spec.domains.values():
        assert domain.title
    for source in sources_of(spec):
        assert source.licence
        if isinstance(source, PypiSource | NpmSource):
            assert source.sha256, f"{source.name} is pinned, so its hash is known"
        if isinstance(source, GeneratorSource):
            assert "gsm_symbolic" not in source.datasets
        if isinstance(source, HubSource):
            assert source.max_read_megabytes


def test_nobody_trains_on_evaluation_items():
    items = {"chat_items", "choice_items", "human_eval"}
    for name in NAMES:
        spec = corpus(name)
        for domain, text in spec.domains.items():
            for source in text.sources:
                used = getattr(source, "extractor", "")
                assert used not in items
                assert used.startswith("web_") <= (domain == "web")


def test_the_default_corpus_needs_pypi_alone():
    kinds = {source.kind for source in sources_of(corpus("default"))}
    assert kinds == {"pypi", "generator"}
    assert {source.kind for source in sources_of(corpus("eight-domains"))} == kinds | {"npm"}
    assert {source.kind for source in sources_of(corpus("full"))} == kinds | {"npm", "debian"}


def test_the_full_corpus_is_the_default_one_and_more():
    default, full = corpus("default"), corpus("full")
    assert default.cleaning == full.cleaning
    shared = by_name(full)
    for name, source in by_name(default).items():
        assert shared[name] == source
    for name, domain in default.domains.items():
        assert full.domains[name].min_megabytes == domain.min_megabytes


def test_eight_domains_are_eight():
    spec = corpus("eight-domains")
    trained = [name for name in spec.domains if name not in held_out_only(spec)]
    assert len(trained) == 8
    assert {spec.domains[name].max_megabytes for name in trained} == {4.5}
