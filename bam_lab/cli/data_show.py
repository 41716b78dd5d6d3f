"""What a built corpus is made of, for the terminal: amounts, cleaning, licences, differences."""

import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from bam_lab.cli.output import amount, printable, size, table
from bam_lab.record.files import intact, read_json
from bam_lab.record.store import Store

SPLITS = ("train", "valid", "test")
HELD_OUT = SPLITS[1:]
EXCERPT_LINES, EXCERPT_WIDTH = 4, 76


def facts(root: Path, folder: Path, samples: int = 0) -> dict[str, Any]:
    """Return all that is known of a built corpus as plain data: what `--json` prints.

    `corpus.json`, and beside it `tokens` (vocabulary -> domain -> split -> tokens), `crossed` and
    `samples` (domain -> excerpts).
    """
    with intact(folder):
        manifest: dict[str, Any] = read_json(folder / "corpus.json")
        manifest["crossed"] = read_json(folder / "crossed.json")
    manifest["folder"] = str(folder)
    manifest["tokens"] = {
        str(tokens["vocab_size"]): tokens["tokens"]
        for _, tokens in encoded(Store(root), manifest["digest"])
    }
    if samples:
        manifest["samples"] = {
            name: list(excerpts(folder, name, samples)) for name in manifest["domains"]
        }
    return manifest


def encoded(store: Store, digest: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (key, `tokens.json`) of every tokenizer stage that encoded this corpus."""
    for key in store.done_keys():
        if not key.startswith("tokenizer-") or not store.is_whole(key):
            continue
        with intact(store.stage(key)):
            made = read_json(store.stage(key) / "spec.json")["spec"]
            if made["corpus_digest"] == digest:
                yield key, read_json(store.stage(key) / "tokens" / "tokens.json")


def excerpts(folder: Path, domain: str, count: int) -> Iterator[dict[str, str]]:
    """Yield the first lines of some documents: of training text, else of what is held out."""
    from bam_lab.data.corpus.manifest import read_documents

    with intact(folder):
        documents = itertools.chain.from_iterable(
            read_documents(folder, domain, split) for split in SPLITS
        )
        for document in itertools.islice(documents, count):
            lines = (
                printable(line).rstrip() for line in re.split(r"[\n\r]", document["text"][:2000])
            )
            kept = itertools.islice(filter(None, lines), EXCERPT_LINES)
            text = "\n".join(_short(line, end=True) for line in kept)
            yield {"id": document["id"], "source": document["source"], "text": text}


def show(found: Mapping[str, Any], out: Console) -> None:
    """Print a corpus, every figure of it."""
    out.print(f"digest {found['digest'][:16]}   {found['folder']}", soft_wrap=True, markup=False)
    names = sorted(found["domains"], key=lambda name: name != found.get("general"))
    for name in names:
        _domain(name, found["domains"][name], found, out)
    _crossed(found["crossed"], names, out)
    _evaluation(found.get("evaluation", {}), out)
    out.print("\n`--samples 3` shows text, `--licences` what a publication owes.", style="dim")


def _domain(name: str, domain: Mapping[str, Any], found: Mapping[str, Any], out: Console) -> None:
    title = printable(domain["title"])
    out.print(Text.assemble("\n", (name, "bold"), f": {title}"))
    if domain["stands_in_for"]:
        out.print(f"stands in for {printable(domain['stands_in_for'])} (of the papers)")
    made = table("source", ">train", ">valid", ">test", ">documents")
    for source, record in domain["sources"].items():
        made.add_row(Text(source, overflow="fold"), *_amounts(record["splits"]))
    made.add_row(Text("all"), *_amounts(domain["splits"]))
    for vocabulary, tokens in found["tokens"].items():
        counts = [amount(tokens[name][split]) for split in SPLITS]
        made.add_row(Text(f"tokens of {int(vocabulary):,}"), *counts, "")
    out.print(made)
    for line in _lines(domain):
        out.print(Text(line))
    for sample in found.get("samples", {}).get(name, ()):
        out.print(Text(f"  {_short(printable(sample['id']))}", style="dim"))
        for line in sample["text"].split("\n"):
            out.print(Text(f"  | {line}"))
    for source, record in domain["sources"].items():
        for problem in _problems(record):
            out.print(Text(f"{source} {printable(problem)}", style="red"))


def _amounts(splits: Mapping[str, Any]) -> list[str]:
    documents = "/".join(f"{splits[split]['documents']}" for split in SPLITS)
    return [*(_size(splits[split]["bytes"]) for split in SPLITS), documents]


def _size(count: int) -> str:
    return f"{count / 1e6:.2f} MB" if count >= 1e5 else size(count)


def _short(text: str, end: bool = False) -> str:
    """Return text that fits beside its mark, cut at its beginning or its end."""
    if len(text) <= EXCERPT_WIDTH:
        return text
    return f"{text[: EXCERPT_WIDTH - 1]}…" if end else f"…{text[1 - EXCERPT_WIDTH :]}"


def _lines(domain: Mapping[str, Any]) -> Iterator[str]:
    """Say what cleaning dropped and moved, and how much of what is held out stands in training."""
    dropped: dict[str, int] = {}
    read = [record["read"] for record in domain["sources"].values()]
    documents, count = (sum(each[of] for each in read) for of in ("documents", "bytes"))
    yield f"Read: {documents:,} documents, {_size(count)}."
    for record in domain["sources"].values():
        for reason, count in record["dropped"].items():
            dropped[reason] = dropped.get(reason, 0) + count
    parts = [f"{count:,} {printable(reason)}" for reason, count in dropped.items() if count]
    yield f"Dropped: {', '.join(parts) or 'nothing'}."
    if domain["splits"]["train"]["documents"]:  # else what overlaps is dropped
        yield f"{domain['moved']:,} held-out documents overlapped training and moved there."
    shares = []
    for split in HELD_OUT:
        hit = domain.get("contamination", {}).get(split)
        if hit and hit["ngrams"]:
            share, documents = hit["ngrams_hit"] / hit["ngrams"], hit["documents_hit"]
            shares.append(f"{split} {share:.2%} (in {documents:,} of {hit['documents']:,})")
    licences: dict[str, list[str]] = {}
    for source, record in domain["sources"].items():
        licences.setdefault(printable(record["licence"]), []).append(source)
    told = (f"{licence} ({', '.join(names)})" for licence, names in licences.items())
    yield f"Licences: {'; '.join(told)}."
    if shares:
        yield f"Runs of 13 words that stand in training too: {', '.join(shares)}."


def _problems(record: Mapping[str, Any]) -> Iterator[str]:
    if record["failure"]:
        yield f"is missing: {record['failure']}"
    elif not any(split["documents"] for split in record["splits"].values()):
        dropped = ", ".join(f"{count:,} {reason}" for reason, count in record["dropped"].items())
        yield (
            f"gave no text: {record['read']['documents']:,} documents were read, dropped "
            f"{dropped or 'nothing'}"
        )
    tally = record.get("tally") or {}
    if tally.get("broken"):
        examples = "; ".join(tally["examples"][:3])
        yield f"has {tally['broken']:,} of {tally['entries']:,} entries broken: {examples}"
    if tally.get("controls"):
        yield f"had control characters in {tally['controls']:,} documents; they were taken out"
    for note in tally.get("notes", ()):
        yield f"{note}"


_NAME = 11
"""Characters of a domain's name in the matrix: as wide as its cells."""


def _crossed(crossed: Mapping[str, Any], names: list[str], out: Console) -> None:
    """Print the matrix in bands of columns that fit the terminal."""
    rows, mixed = crossed["bits_per_byte"], crossed["equal_mix"]
    tested = [name for name in names if name in mixed]
    trained = [name for name in names if name in rows]
    if len(tested) < 2:
        return
    out.print(Text("\nHow different are the domains?", style="bold"))
    out.print(
        f"Bits per byte of a byte {crossed['order']}-gram that read {size(crossed['train_bytes'])},"
        " row trained, column tested; in brackets how many times the perplexity per byte of the"
        " domain's own model."
    )
    wide = max(1, (out.width - _NAME) // (_NAME + 1))
    for start in range(0, len(tested), wide):
        columns = tested[start : start + wide]
        made = table("", *(f">{name[:_NAME]}" for name in columns))
        for row in trained:
            made.add_row(row[:_NAME], *(_bits(rows, row, column) for column in columns))
        made.add_row("equal mix", *(f"{mixed[column]:.2f}" for column in columns))
        out.print(made)


def _bits(rows: Mapping[str, Mapping[str, float]], row: str, column: str) -> Text:
    bits = rows[row][column]
    if row == column:
        return Text(f"{bits:.2f}", style="bold")
    own = rows.get(column, {}).get(column)
    if own is None:
        return Text(f"{bits:.2f}")
    ratio = 2 ** (bits - own)
    return Text(f"{bits:.2f} ({ratio:.{0 if ratio >= 99.95 else 1}f})")


def _evaluation(items: Mapping[str, Any], out: Console) -> None:
    if not items:
        return
    out.print(Text("\nEvaluation items with a run of 13 words in training text", style="bold"))
    made = table("source", ">items", "in training")
    for name, record in items.items():
        hits = [f"{domain} {count:,}" for domain, count in record["hits"].items() if count]
        told = f"missing: {record['failure']}" if record["failure"] else ", ".join(hits) or "none"
        made.add_row(Text(name), f"{record['items']:,}", Text(printable(told)))
    out.print(made)
