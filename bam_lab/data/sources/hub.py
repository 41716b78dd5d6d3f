"""Read Hugging Face data sets: streamed from the hub up to a budget, or saved to disk.

What is streamed is kept in the cache, a row a line; a stream that breaks off goes on from there at
the next call, and what came whole is never asked for again. The only module that imports
`datasets`.
"""

import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bam_lab.data.sources import lines
from bam_lab.data.sources.pieces import Opened, Piece, Tally
from bam_lab.errors import InputError
from bam_lab.record.files import explained, make_folder, read_json, sha256, write_json
from bam_lab.spec.sources import HubSource

_ROWS_A_PIECE = 20_000


def opened(source: HubSource, cache: Path) -> Opened:
    """Stream what is not in the cache, and cut the data set into pieces.

    Raises:
        InputError: it cannot be had; says why and what to do.
    """
    if not Path(source.dataset).is_absolute():
        path, revision = _fetched(source, cache)
        package = f"{source.dataset} {revision}"
        return Opened(
            tuple(lines.cut(path, None)), package, {"file": path.name, "sha256": sha256(path)}
        )
    rows = _from_disk(source)
    counted = source.max_read_megabytes is None and not source.filters
    if not hasattr(rows, "__len__") or not counted:
        return Opened((Piece(source.dataset),))
    total = min(len(rows), source.max_documents or len(rows))
    starts = range(0, total, _ROWS_A_PIECE)
    return Opened(
        tuple(
            Piece(source.dataset, start, min(start + _ROWS_A_PIECE, total), start + 1)
            for start in starts
        )
    )


def documents(source: HubSource, piece: Piece, tally: Tally) -> Iterator[tuple[str, str]]:
    """Yield (row, text) of every row that can be read, and tally the others.

    Raises:
        InputError: the data set on disk is damaged.
    """
    if not Path(source.dataset).is_absolute():
        yield from lines.documents(piece, "row", "text", None, tally)
        return
    rows = _from_disk(source)
    if piece.stop is not None:
        rows = rows.select(range(piece.start, piece.stop))
    for number, row in _wanted(source, _guarded(source, iter(rows)), piece.line):
        tally.entries += 1
        try:
            yield f"row#{number}", lines.text_of(row, source.text_field)
        except ValueError as error:
            tally.reject(f"{source.dataset} row {number}", str(error))


def _wanted(
    source: HubSource, rows: Iterator[dict[str, Any]], first: int = 1, had: tuple[int, int] = (0, 0)
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (number, row) of the rows that pass the filters, within the budget.

    Args:
        source: whose filters and budget.
        rows: from number `first` on.
        first: number of the first row.
        had: documents and bytes of text that count already.

    Raises:
        InputError: the first row lacks a field.
    """
    documents, size = had
    most = None if source.max_read_megabytes is None else source.max_read_megabytes * 1e6
    for number, row in enumerate(rows, start=first):
        if number == first:
            _see_fields(source, row)
        if any(_value(row, field) != value for field, value in source.filters.items()):
            continue
        documents += 1
        text = _value(row, source.text_field) or ""
        size += len(text.encode(errors="replace"))
        if (most is not None and size > most) or documents > (source.max_documents or documents):
            return
        yield number, row
        if documents == source.max_documents:  # a stream would fetch on to find the next
            return


def _value(row: dict[str, Any], field: str) -> str | None:
    try:
        value = lines.value_of(row, field)
    except ValueError:
        return None
    return None if value is None else str(value)


def _see_fields(source: HubSource, row: dict[str, Any]) -> None:
    for field in (source.text_field, *source.filters):
        try:
            lines.value_of(row, field)
        except ValueError as error:
            key = "text_field" if field == source.text_field else "filters"
            raise InputError(
                f"{source.name}: a row of {source.dataset} {error}. Mend {key} in the corpus."
            ) from None


def _fetched(source: HubSource, cache: Path) -> tuple[Path, str]:
    """Return the file of the cache with the rows, and the commit that they are of."""
    spec = source.model_dump(mode="json", exclude={"name", "licence", "max_megabytes"})
    key = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:16]
    folder = make_folder(cache / "huggingface" / "rows")
    path = folder / f"{source.dataset.replace('/', '--')}-{key}.jsonl"
    about = path.with_suffix(".json")
    if path.exists() and about.exists():
        return path, str(read_json(about)["revision"])
    part = path.with_suffix(".part")
    with explained(part), part.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # another build may be at it: wait
        if not path.exists():
            _fetch(source, cache, part, about)
            part.replace(path)
    return path, str(read_json(about)["revision"])


def _fetch(source: HubSource, cache: Path, part: Path, about: Path) -> None:
    """Write the rows to `part`, after those that are there."""
    if not about.exists():
        write_json(about, {"dataset": source.dataset, "revision": _revision(source, cache)})
    revision = str(read_json(about)["revision"])
    row, had = _kept(part)
    rows = _guarded(source, _streamed(source, revision, row, cache))
    with explained(part), part.open("ab") as file:
        for number, found in _wanted(source, rows, row + 1, had):
            text = _value(found, source.text_field)
            line = json.dumps({"row": number, "text": text}, ensure_ascii=True)
            file.write(line.encode() + b"\n")


def _kept(part: Path) -> tuple[int, tuple[int, int]]:
    """Cut a half-written last line off; return the last row, and the documents and bytes so far."""
    row, documents, size, whole = 0, 0, 0, 0
    with part.open("rb+") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break
            found = json.loads(line)
            row, documents = found["row"], documents + 1
            size += len((found["text"] or "").encode(errors="replace"))
            whole += len(line)
        file.truncate(whole)
    return row, (documents, size)


def _guarded(source: HubSource, rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Pass rows on; tell what the foreign library raises."""
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except InputError:
            raise
        except Exception as error:  # whatever httpx, fsspec, pyarrow and datasets may raise
            raise _refused(source, error) from error
        yield row


def _refused(source: HubSource, error: Exception) -> InputError:
    told = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    if Path(source.dataset).is_absolute():
        return InputError(
            f"{source.name}: {source.dataset} must be a sound data set, got {told}. "
            "Save it anew, or mend the source."
        )
    return InputError(
        f"{source.name}: {source.dataset} could not be read from the Hugging Face hub ({told}). "
        "This needs a network, a name and revision that exist, and for some sets `hf auth login`. "
        "Run `bam-lab prepare` where there is a network; what came is kept, and it goes on there."
    )


def _library(source: HubSource, cache: Path | None = None) -> Any:
    # Read at import. The home stays, for the user's login is in it.
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    if cache is not None:
        os.environ.setdefault("HF_HUB_CACHE", str(cache / "huggingface" / "hub"))
    try:
        import datasets  # in the extra `hub`
    except ModuleNotFoundError:
        raise InputError(
            f"{source.name}: reading a Hugging Face data set needs datasets. "
            "Run: pip install 'bam-lab[hub]'"
        ) from None
    return datasets


def _revision(source: HubSource, cache: Path) -> str:
    """Return the commit that the source's revision, or the newest, is."""
    _library(source, cache)
    import huggingface_hub  # comes with datasets

    try:
        told = huggingface_hub.HfApi().dataset_info(source.dataset, revision=source.revision)
    except Exception as error:  # whatever httpx and the hub may raise
        raise _refused(source, error) from error
    return str(told.sha)


def _streamed(source: HubSource, revision: str, skip: int, cache: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of the data set on the hub from number `skip`."""
    kept = str(cache / "huggingface" / "datasets")
    library = _library(source, cache)
    if source.files is not None:
        rows = _read_files(source, library, f"hf://datasets/{source.dataset}@{revision}", kept)
    else:
        rows = library.load_dataset(
            source.dataset,
            source.subset,
            split=source.split,
            revision=revision,
            streaming=True,
            cache_dir=kept,
        )
    yield from rows.skip(skip) if skip else rows


def _read_files(source: HubSource, library: Any, where: str, kept: str) -> Any:
    """Return the rows of the files that the source names, below `where`."""
    assert source.files is not None
    kind = "parquet" if source.files.endswith(".parquet") else "json"
    files = {source.split: f"{where}/{source.files}"}
    return library.load_dataset(
        kind, data_files=files, split=source.split, streaming=True, cache_dir=kept
    )


def _from_disk(source: HubSource) -> Any:
    """Return the rows of a data set in a folder: one saved by `datasets`, or its files."""
    folder = Path(source.dataset)
    library = _library(source)
    saved = [name for name in ("dataset_dict.json", "state.json") if (folder / name).is_file()]
    try:
        if not saved:
            with tempfile.TemporaryDirectory() as locks:  # it leaves one in its cache
                if source.files is not None:
                    return _read_files(source, library, str(folder), locks)
                return library.load_dataset(
                    str(folder),
                    source.subset,
                    split=source.split,
                    streaming=True,
                    cache_dir=locks,
                )
        found = library.load_from_disk(str(folder))
    except Exception as error:  # whatever pyarrow and datasets may raise
        raise _refused(source, error) from error
    if {source.subset, source.files, source.revision} != {None}:
        raise InputError(
            f"{source.name}: subset, files and revision have no effect on one saved to disk. "
            "Remove them."
        )
    splits = dict(found) if isinstance(found, library.DatasetDict) else {str(found.split): found}
    splits = {source.split: splits["None"]} if "None" in splits else splits
    if source.split not in splits:
        raise InputError(
            f"{source.name}: split must be one of {', '.join(splits)}, got {source.split}. "
            "Mend it in the corpus."
        )
    return splits[source.split]
