"""What sources of the user's own must say before anything is read."""

import pytest

from bam_lab.errors import SpecError
from bam_lab.spec.corpus import CorpusSpec, identity, located, sources_of
from bam_lab.spec.reader import read

CORPUS = """
schema: 1
general: law
cleaning:
  min_characters: 1
  max_characters: 100000
  min_ascii_share: 0.5
  paragraph_characters: 80
  paragraph_repeats: 2
  shingle_words: 8
  near_duplicate_jaccard: 0.8
  held_out_overlap: 0.2
domains:
  law:
    title: text
    min_megabytes: 0.001
    max_megabytes: 1.0
    hold_out: {valid: 0.1, test: 0.1}
    sources:
      - {name: mine, licence: CC0-1.0, max_megabytes: 1.0, SOURCE}
"""


def corpus(folder, source):
    path = folder / "corpus.yaml"
    path.write_text(CORPUS.replace("SOURCE", source))
    return located(read(path, CorpusSpec), folder)


@pytest.mark.parametrize("encoding", ["latin1", "utf-16", "cp1252"])
def test_takes_encodings_that_python_knows(tmp_path, encoding):
    spec = corpus(tmp_path, f"kind: files, folder: ., pattern: '*', encoding: {encoding}")
    (source,) = sources_of(spec)
    assert source.encoding == encoding


@pytest.mark.parametrize("encoding", ["latin-one", "rot13", "base64", "''"])
def test_refuses_other_encodings(tmp_path, encoding):
    with pytest.raises(SpecError, match="encoding must be one that Python knows, such as latin-1"):
        corpus(tmp_path, f"kind: files, folder: ., pattern: '*', encoding: {encoding}")


@pytest.mark.parametrize("budget", ["max_documents: 5", "max_read_megabytes: 0.5"])
def test_a_data_set_on_the_hub_needs_a_budget(tmp_path, budget):
    with pytest.raises(SpecError, match="mine: max_documents or max_read_megabytes must be given"):
        corpus(tmp_path, "kind: huggingface, dataset: allenai/c4")
    corpus(tmp_path, f"kind: huggingface, dataset: allenai/c4, {budget}")


@pytest.mark.parametrize("dataset", ["./mine", "/no/such/folder", "../mine", "a/b/c"])
def test_a_data_set_that_is_neither_folder_nor_name(tmp_path, dataset):
    with pytest.raises(SpecError, match="dataset must be a name on the hub or a folder, got"):
        corpus(tmp_path, f"kind: huggingface, dataset: {dataset}, max_documents: 5")


def test_a_data_set_in_a_folder_needs_no_budget_and_may_move(tmp_path):
    found = []
    for place in (tmp_path / "one", tmp_path / "other"):
        (place / "saved").mkdir(parents=True)
        found.append(corpus(place, "kind: huggingface, dataset: saved"))
    assert found[0] != found[1]
    assert identity(found[0]) == identity(found[1])
