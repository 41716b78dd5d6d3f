"""Shares, pools, orders, and what is read of each source, against counting tokens one by one."""

import math
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bam_lab import resources
from bam_lab.data.tokens.batches import Batches
from bam_lab.data.tokens.draws import drawn
from bam_lab.data.tokens.encode import DOCUMENT, documents
from bam_lab.data.tokens.sources import source_reads
from bam_lab.errors import InputError
from bam_lab.spec.parts import part_of
from bam_lab.spec.reader import read
from bam_lab.spec.scale import ScaleSpec
from tests.data.random_tokens import write_domain, write_manifest

SEQ_LEN = 32
SOURCES = ["essays", "manuals", "news"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokens")
    random = np.random.default_rng(1)
    write_domain(folder, "general", random.integers(0, 90, 100), random.integers(0, 2, 100))
    write_domain(folder, "law", random.integers(0, 300, 40), np.full(40, 2), rng_seed=1)
    write_manifest(folder, SOURCES, ("general", "law"))
    return folder


def batches_of(folder, mix, batch_sequences=4, rng_seed=0, **settings):
    return Batches(folder, mix, batch_sequences, SEQ_LEN, rng_seed, **settings)


def counted(folder, batches, num_batches):
    """Return {source: (tokens, repeated, could be read)} by marking every target that is read."""
    result = {}
    for domain in batches.weights:
        text = np.load(folder / f"{domain}.train.npy")
        owner = np.repeat(
            (index := documents(folder, domain, "train"))["source"], index["length"] + 1
        )
        where = {
            text[start : start + SEQ_LEN + 1].tobytes(): start
            for start in range(0, len(text) - SEQ_LEN, SEQ_LEN)
        }
        times = np.zeros(len(text), dtype=int)
        for i in range(num_batches):
            rows = batches.batch(i).astype(text.dtype)
            for row, (name, _) in zip(rows, batches.draws(i), strict=True):
                if name == domain:
                    start = where[row.tobytes()]
                    times[start + 1 : start + SEQ_LEN + 1] += 1
        for number, source in enumerate(SOURCES):
            own = times[owner == number]
            if len(own):
                result[source] = int(own.sum()), int(np.maximum(own - 1, 0).sum())
    return result


@pytest.mark.parametrize("num_batches", [0, 1, 30, 101])
@pytest.mark.parametrize("pools", [{}, {"general": 7}])
def test_reads_of_each_source_are_those_counted_token_by_token(folder, num_batches, pools):
    batches = batches_of(folder, {"general": 0.4, "law": 0.6}, pools=pools)
    found = batches.sources(num_batches)
    wanted = counted(folder, batches, num_batches)
    assert {s: (r.tokens, r.repeated_tokens) for s, r in found.items()} == wanted
    assert sum(reads.tokens for reads in found.values()) == num_batches * 4 * SEQ_LEN


def test_epochs_of_a_source_are_by_what_could_be_drawn(folder):
    batches = batches_of(folder, {"law": 1.0}, 1)
    count = batches.sequences["law"]
    assert batches.sources(3 * count)["news"].epochs == 3
    assert batches.sources(3 * count)["news"].repeated_tokens == 2 * count * SEQ_LEN
    assert batches.sources(count // 2)["news"].repeated_tokens == 0
    assert set(batches.sources(1)) == {"news"}


@pytest.mark.parametrize("repeats", [1, 3, 8])
@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_a_pool_is_read_exactly_as_often_as_asked(folder, share, repeats):
    mix, steps = {"general": share, "law": 1 - share}, 60
    draws = drawn(mix, 4 * steps)["general"]
    size = math.ceil(draws / repeats)
    batches = batches_of(folder, mix, pools={"general": size})
    read = Counter(
        row.tobytes()
        for i in range(steps)
        for row, (domain, _) in zip(batches.batch(i), batches.draws(i), strict=True)
        if domain == "general"
    )
    assert len(read) == size
    assert max(read.values()) == math.ceil(draws / size) <= repeats
    assert sum(read.values()) == draws
    if draws % repeats == 0:
        assert set(read.values()) == {repeats}
        found = batches.sources(steps)
        assert {found[s].epochs for s in ("essays", "manuals") if s in found} == {repeats}
    assert batches.epochs(steps)["general"] == draws / size


def test_a_pool_is_a_sample_and_changes_no_other_domain(folder):
    mix = {"general": 0.5, "law": 0.5}
    plain = batches_of(folder, mix)
    pooled, other = (batches_of(folder, mix, rng_seed=s, pools={"general": 9}) for s in (0, 1))
    places = [np.sort(b._pools["general"]) for b in (pooled, other)]
    assert not np.array_equal(*places)
    assert not np.array_equal(places[0], np.arange(9))
    for i in range(20):
        of_law = [name == "law" for name, _ in plain.draws(i)]
        assert np.array_equal(plain.batch(i)[of_law], pooled.batch(i)[of_law])
        assert not np.array_equal(plain.batch(i), pooled.batch(i))


def test_a_pool_of_more_than_there_is_is_refused(folder):
    with pytest.raises(InputError, match=r"general must hold at least 3,200,001 .* general_rep"):
        batches_of(folder, {"general": 1.0}, pools={"general": 100_000})


def test_an_order_of_documents_is_read_and_sources_follow(folder, tmp_path):
    """The chain ends with the longest document, so sequences hold other documents than before."""
    text, index = (np.load(folder / f"law.train{end}.npy") for end in ("", ".documents"))
    chain = np.argsort(index["length"], kind="stable")
    pieces = [text[row["start"] : row["start"] + row["length"] + 1] for row in index[chain]]
    rows = index[chain].astype(DOCUMENT)
    rows["start"] = np.cumsum(rows["length"] + 1) - rows["length"] - 1
    np.save(tmp_path / "law.train.npy", np.concatenate(pieces))
    np.save(tmp_path / "law.train.documents.npy", rows)
    plain = batches_of(folder, {"law": 1.0})
    chained = batches_of(folder, {"law": 1.0}, order_dir=tmp_path)
    assert chained.sequences == plain.sequences
    assert not np.array_equal(plain.batch(0), chained.batch(0))
    place = int(chained._permutation("law", 0)[0]) * SEQ_LEN
    assert np.array_equal(chained.batch(0)[0], np.concatenate(pieces)[place : place + SEQ_LEN + 1])
    assert np.array_equal(plain._permutation("law", 0), chained._permutation("law", 0))
    wanted = counted(tmp_path, chained, 9)
    found = chained.sources(9)
    assert {s: (r.tokens, r.repeated_tokens) for s, r in found.items()} == wanted


@given(
    weights=st.lists(st.floats(1e-3, 1.0), min_size=1, max_size=12),
    sequences=st.integers(1, 40_000),
)
@settings(max_examples=150, deadline=None)
def test_realised_share_is_the_mix(weights, sequences):
    """Within two sequences, so within 0.1% from 2,000 sequences on; nano's phases have 9,600 up."""
    mix = {f"d{i:02}": w / sum(weights) for i, w in enumerate(weights)}
    counts = drawn(mix, sequences)
    assert sum(counts.values()) == sequences
    off = [abs(counts[name] - sequences * share) for name, share in mix.items()]
    assert max(off) < 2


@pytest.mark.parametrize("phase", ["seed_model", "expert", "mixture"])
@pytest.mark.parametrize("general", [0.05, 0.1, 0.2, 0.5])
def test_shares_at_the_numbers_of_nano(phase, general):
    path = resources.folder("configs") / "scale" / "nano.yaml"
    size = getattr(read(path, ScaleSpec).phases, phase)
    steps = math.ceil(size.tokens / (size.batch_sequences * 256))
    for mix in (
        {"general": general, "law": 1 - general},
        {"general": general, **{d: (1 - general) / 3 for d in ("code", "law", "math")}},
        {"code": 0.4031, "general": 0.1923, "law": 0.1030, "math": 0.3016},  # BTX's
    ):
        total = steps * size.batch_sequences
        counts = drawn(dict(sorted(mix.items())), total)
        assert all(abs(counts[d] / total - share) < 1e-3 for d, share in mix.items())


def test_a_million_sequences_are_counted_in_well_under_a_second():
    random = np.random.default_rng(0)
    index = np.zeros(1_000_000, dtype=DOCUMENT)
    index["length"] = random.integers(0, 500, len(index))
    index["start"] = np.cumsum(index["length"] + 1) - index["length"] - 1
    index["source"] = random.integers(0, 5, len(index))
    times = random.integers(0, 3, 1_000_000)
    start = time.perf_counter()
    found = source_reads(index, times, np.ones_like(times), 200, 5)
    assert time.perf_counter() - start < 5  # 0.2 s measured, with room for a busy CI
    assert found[:, 0].sum() == times.sum() * 200


def test_parts_of_a_domain_are_counted_under_its_sources(folder):
    assert part_of("law.1of2")
    batches = batches_of(folder, {"law.1of2": 0.5, "law.2of2": 0.5}, 2)
    assert batches.sources(10)["news"].tokens == 10 * 2 * SEQ_LEN
