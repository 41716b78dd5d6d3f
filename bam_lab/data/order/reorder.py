"""Write the training text of every domain with similar documents side by side.

DOMAIN.train.npy            the tokens, document after document of the chain (as `encode.py`'s)
DOMAIN.train.documents.npy  one `DOCUMENT` a document of the chain
DOMAIN.train.rows.npy       the row that each had in the encoded corpus
order.json                  domain -> `DomainOrder`

Each domain is embedded and chained by itself and as a whole. A part of it (`math.1of2`) is made of
the same documents in every order, those of its rows, and keeps the order of the chain.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bam_lab.data.arrays import digest
from bam_lab.data.corpus.manifest import read_documents
from bam_lab.data.order.chain import Chain, chain
from bam_lab.data.order.embed import Embed, Vectors
from bam_lab.data.order.neighbours import Neighbours, by_faiss, exact, need_faiss
from bam_lab.data.tokens.encode import documents, read_tokens_manifest, stream
from bam_lab.errors import InputError
from bam_lab.record.files import explained, intact, make_folder, write_json
from bam_lab.spec.data import Similar

MANIFEST = "order.json"

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class DomainOrder:
    """Describe the order of one domain's training documents.

    Attributes:
        similarity: mean cosine of documents that follow each other; 0 for a single document.
        similarity_random: the same in the order of the encoded corpus, that of a hash.
        restarts: how often the next document was not a neighbour of the one before.
    """

    documents: int
    similarity: float
    similarity_random: float
    restarts: int


def reorder(
    corpus_dir: Path,
    tokens_dir: Path,
    out: Path,
    similar: Similar,
    embed: Embed,
    workers: int = 1,
    progress: Progress = lambda note, done, total: None,
) -> tuple[str, dict[str, DomainOrder]]:
    """Order the training documents of every domain that has some.

    Args:
        corpus_dir: the built corpus, for the text.
        tokens_dir: the same corpus encoded.
        out: folder to write to.
        similar: how to order.
        embed: turns texts into vectors.
        workers: threads; their number changes no bit.
        progress: gets a note, how many documents have been embedded or compared, and of how many.

    Returns:
        A digest of the arrays, and what was done in each domain.

    Raises:
        InputError: a package is missing, or the two folders do not belong together.
    """
    if similar.index == "faiss":
        need_faiss()  # before the hours that embedding may take
    make_folder(out)
    with intact(tokens_dir):
        domains = [
            d for d, tokens in read_tokens_manifest(tokens_dir).tokens.items() if tokens["train"]
        ]
        sizes = {domain: len(documents(tokens_dir, domain, "train")) for domain in domains}
    steps, made, records = 2 * sum(sizes.values()), 0, {}

    def done(note: str) -> Callable[[int], None]:
        def add(count: int) -> None:
            nonlocal made
            made += count
            progress(note, made, steps)

        return add

    for domain in domains:
        vectors = embed(_texts(corpus_dir, domain, done(f"reading {domain}")))
        if len(vectors) != sizes[domain]:
            raise InputError(
                f"{corpus_dir} must hold the {sizes[domain]} training documents of {domain} that "
                f"{tokens_dir} encodes, got {len(vectors)}. Delete both and run again."
            )
        near = _neighbours(vectors, similar, workers, done(f"comparing {domain}"))
        found = chain(near, similar.traversal)
        with explained(out):
            _write(tokens_dir, out, domain, found)
        records[domain] = _record(vectors, found)
    write_json(out / MANIFEST, {domain: asdict(record) for domain, record in records.items()})
    return digest(out), records


def mean_similarity(vectors: Vectors, order: NDArray[np.int64]) -> float:
    """Return the mean cosine of documents that follow each other in `order`; 0 without a pair."""
    total = 0.0
    for start in range(0, len(order) - 1, 4096):
        rows = vectors[order[start : start + 4097]].astype(np.float64)
        total += float(np.sum(rows[1:] * rows[:-1]))
    return total / max(len(order) - 1, 1)


def _texts(corpus_dir: Path, domain: str, done: Callable[[int], None]) -> Iterator[str]:
    for document in read_documents(corpus_dir, domain, "train"):
        yield document["text"]
        done(1)


def _neighbours(
    vectors: Vectors, similar: Similar, workers: int, done: Callable[[int], None]
) -> Neighbours:
    match similar.index:
        case "exact":
            return exact(vectors, similar.neighbours, workers, done)
        case "faiss":
            return by_faiss(vectors, similar.neighbours, similar.rng_seed, done=done)


def _record(vectors: Vectors, found: Chain) -> DomainOrder:
    return DomainOrder(
        documents=len(vectors),
        similarity=mean_similarity(vectors, found.order),
        similarity_random=mean_similarity(vectors, np.arange(len(vectors))),
        restarts=found.restarts,
    )


def _write(tokens_dir: Path, out: Path, domain: str, found: Chain) -> None:
    """Write one domain's documents in the order of the chain, one at a time."""
    tokens = stream(tokens_dir, domain, "train")
    index = documents(tokens_dir, domain, "train")[found.order]
    sizes = index["length"] + 1
    ends = np.cumsum(sizes)
    written = np.lib.format.open_memmap(
        out / f"{domain}.train.npy", mode="w+", dtype=tokens.dtype, shape=tokens.shape
    )
    for start, end, size in zip(
        index["start"].tolist(), ends.tolist(), sizes.tolist(), strict=True
    ):
        written[end - size : end] = tokens[start : start + size]
    written.flush()
    index["start"] = ends - sizes
    np.save(out / f"{domain}.train.documents.npy", index)
    np.save(out / f"{domain}.train.rows.npy", found.order)
