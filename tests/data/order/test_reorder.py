import json
from itertools import pairwise

import numpy as np
import pytest

from bam_lab.data.corpus.manifest import read_documents
from bam_lab.data.order.embed import tfidf_svd
from bam_lab.data.order.reorder import mean_similarity, reorder
from bam_lab.data.tokens.encode import documents, read_tokens_manifest, stream
from bam_lab.errors import InputError
from bam_lab.spec.data import Similar

DOMAINS = ("code", "general", "law", "math")


def embed(texts):
    return tfidf_svd(texts, 16, 0)


@pytest.fixture(scope="module")
def ordered(tmp_path_factory, corpus_dir, tokens_dir):
    folder = tmp_path_factory.mktemp("order")
    return folder, *reorder(corpus_dir, tokens_dir, folder, Similar(neighbours=5), embed)


def texts_of(folder, domain):
    tokens, rows = stream(folder, domain, "train"), documents(folder, domain, "train")
    return [tuple(tokens[row["start"] : row["start"] + row["length"] + 1]) for row in rows]


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_document_stands_there_once_and_whole(domain, ordered, tokens_dir):
    folder, _, _ = ordered
    before, after = texts_of(tokens_dir, domain), texts_of(folder, domain)
    assert sorted(before) == sorted(after) and before != after
    rows = np.load(folder / f"{domain}.train.rows.npy")
    assert [before[row] for row in rows] == after
    index, old = documents(folder, domain, "train"), documents(tokens_dir, domain, "train")
    for field in ("length", "bytes", "source"):
        np.testing.assert_array_equal(index[field], old[rows][field])
    assert len(stream(folder, domain, "train")) == len(stream(tokens_dir, domain, "train"))
    # End to end, each followed by end-of-text.
    end = read_tokens_manifest(tokens_dir).end_of_text
    assert [token for text in after for token in text] == stream(folder, domain, "train").tolist()
    assert all(text[-1] == end for text in after)


@pytest.mark.parametrize("domain", DOMAINS)
def test_its_record_is_what_stands_side_by_side(domain, ordered, corpus_dir):
    folder, _, records = ordered
    vectors = embed(row["text"] for row in read_documents(corpus_dir, domain, "train"))
    rows = np.load(folder / f"{domain}.train.rows.npy")
    pairs = [float(vectors[a] @ vectors[b]) for a, b in pairwise(rows)]
    before = [float(a @ b) for a, b in pairwise(vectors)]
    record = json.loads((folder / "order.json").read_text())[domain]
    assert record["documents"] == len(vectors)
    assert record["similarity"] == pytest.approx(np.mean(pairs), abs=1e-6)
    assert record["similarity_random"] == pytest.approx(np.mean(before), abs=1e-6)
    assert record["similarity"] > record["similarity_random"]
    assert record["restarts"] == records[domain].restarts < len(vectors) / 2


@pytest.mark.parametrize("number", [1, 2])
def test_a_part_is_the_same_documents_in_the_order_of_the_chain(number, ordered, tokens_dir):
    folder, _, _ = ordered
    part = f"math.{number}of2"
    assert sorted(texts_of(folder, part)) == sorted(texts_of(tokens_dir, part))
    wanted = set(texts_of(tokens_dir, part))
    assert texts_of(folder, part) == [t for t in texts_of(folder, "math") if t in wanted]
    together = sorted(texts_of(folder, "math.1of2") + texts_of(folder, "math.2of2"))
    assert together == sorted(texts_of(tokens_dir, "math"))


def test_again_and_with_more_threads_it_is_the_same_to_the_last_byte(
    ordered, tmp_path, corpus_dir, tokens_dir
):
    folder, digest, _ = ordered
    again, _ = reorder(corpus_dir, tokens_dir, tmp_path, Similar(neighbours=5), embed, workers=3)
    assert again == digest
    for path in folder.iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()


def test_other_settings_give_other_orders(ordered, tmp_path, corpus_dir, tokens_dir):
    _, digest, _ = ordered
    others = {digest}
    for name, similar in {
        "simple": Similar(neighbours=5, traversal="simple"),
        "far": Similar(neighbours=1),
    }.items():
        others.add(reorder(corpus_dir, tokens_dir, tmp_path / name, similar, embed)[0])
    assert len(others) == 3
    similar = Similar(neighbours=5, index="faiss")
    _, records = reorder(corpus_dir, tokens_dir, tmp_path / "faiss", similar, embed)
    assert records["law"].similarity > records["law"].similarity_random


def test_progress_counts_each_document_twice(tmp_path, corpus_dir, tokens_dir):
    seen = []
    reorder(
        corpus_dir, tokens_dir, tmp_path, Similar(), embed,
        progress=lambda note, done, total: seen.append((note, done, total)),
    )  # fmt: skip
    total = 2 * sum(len(documents(tokens_dir, domain, "train")) for domain in DOMAINS)
    assert seen[-1][1:] == (total, total)
    assert [done for _, done, _ in seen] == sorted({done for _, done, _ in seen})
    assert {"reading law", "comparing law"} <= {note for note, _, _ in seen}


def test_folders_that_do_not_belong_together(tmp_path, tokens_dir, corpus_dir):
    other = tmp_path / "corpus"
    other.mkdir()
    for path in corpus_dir.glob("*.train.jsonl"):
        (other / path.name).write_text(path.read_text().partition("\n")[0] + "\n")
    with pytest.raises(InputError, match=r"must hold the \d+ training documents of code .* 1\."):
        reorder(other, tokens_dir, tmp_path / "out", Similar(), embed)


def test_mean_similarity_of_one_document_is_zero():
    vectors = np.eye(2, dtype=np.float32)
    assert mean_similarity(vectors, np.array([0])) == 0
    assert mean_similarity(vectors, np.array([0, 0, 1])) == 0.5


def test_mean_similarity_over_its_blocks():
    vectors = np.random.default_rng(0).standard_normal((10_000, 3)).astype(np.float32)
    order = np.random.default_rng(1).permutation(10_000)
    expected = np.mean(np.sum(vectors[order[1:]] * vectors[order[:-1]], axis=1, dtype=np.float64))
    assert mean_similarity(vectors, order) == pytest.approx(expected, abs=1e-6)
