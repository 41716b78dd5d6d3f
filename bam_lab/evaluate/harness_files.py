"""Task files of lm-evaluation-harness: what code is in them, and their rows without a cache.

Nothing here runs what a file holds. A task has code where a file has a tag of its own
(`!function`), or a configuration a callable, `class`, `custom_dataset`, `unsafe_code`, or a metric
of the `evaluate` library, which is a script; `include` is followed. JSON lines are read into
memory, from beside the file that names them; lm-eval would look in the process's own folder and
leave copies in a cache.
"""

import importlib.util
import json
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from bam_lab.errors import InputError

_CODE_KEYS = ("class", "custom_dataset", "unsafe_code", "hf_evaluate", "use_prompt")
_LOCAL = ("json", "csv", "parquet", "text")
Config = Mapping[str, Any]


class Rows(list[dict[str, Any]]):
    """Hold the documents of one split as lm-eval reads them."""

    @property
    def features(self) -> dict[str, None]:
        """Return the names of the fields, which every document has."""
        return dict.fromkeys(self[0]) if self else {}


class Memory:
    """Hold a task's splits: a `custom_dataset` that is data, not code."""

    def __init__(self, splits: Mapping[str, Sequence[Mapping[str, Any]]]):
        """Take the documents; a field that one lacks is None there, as in a table."""
        self._splits = {}
        for split, documents in splits.items():
            fields = dict.fromkeys(key for document in documents for key in document)
            self._splits[split] = Rows({**fields, **document} for document in documents)

    def __call__(self, **_: Any) -> dict[str, Rows]:
        """Return split -> documents."""
        return self._splits

    def __deepcopy__(self, memo: object) -> "Memory":
        """Return itself: configurations are copied often, and nobody changes documents."""
        return self

    def __repr__(self) -> str:
        """Say how much there is; configurations are printed with results."""
        return f"Memory({ {split: len(rows) for split, rows in self._splits.items()} })"


def in_memory(config: Config, splits: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Return a task's configuration with its documents, split -> documents, in memory."""
    places = ("dataset_path", "dataset_name", "dataset_kwargs")
    kept = {key: value for key, value in config.items() if key not in places}
    return kept | {"custom_dataset": Memory(splits)}


def yaml_files(folders: Sequence[Path]) -> list[Path]:
    """Return the task files below folders, as lm-eval finds them.

    Raises:
        InputError: a folder is not there.
    """
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"{folder} must be a folder of task files, got none. Mend the path.")
    return [path for folder in folders for path in sorted(folder.rglob("*.yaml"))]


def own_folders(names: Sequence[str]) -> list[Path]:
    """Return folders of lm-evaluation-harness's own task files.

    Raises:
        InputError: it is not installed, or has no such folder.
    """
    found = importlib.util.find_spec("lm_eval")
    if found is None or found.origin is None:
        raise InputError("it needs lm-evaluation-harness. Run: pip install 'bam-lab[eval]'")
    folders = [Path(found.origin).parent / "tasks" / name for name in names]
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"{folder} must be a folder of lm-eval, got none: another version?")
    return folders


def problem_of(path: Path) -> str | None:
    """Return why a file is no task file; None for one. lm-eval leaves bad ones out in silence."""
    try:
        node = _composed(path)
    except InputError as error:
        return str(error)
    if not isinstance(node, yaml.MappingNode):
        return f"{path} must hold `key: value` lines, got something else. Mend it or take it away."
    return None


def code_in_file(path: Path) -> list[str]:
    """Return what of a task file, and of those it includes, is or may run Python code.

    Raises:
        InputError: it, or one that it includes, is no YAML.
    """
    return list(dict.fromkeys(_code_in(path, ())))


def code_in_config(config: Config) -> list[str]:
    """Return what of a configuration is or may run Python code."""
    return list(dict.fromkeys(_code_in_value(config, "")))


def with_data(config: Config, folder: Path | None) -> dict[str, Any]:
    """Return a configuration whose local data files are found, wherever the process stands.

    Args:
        config: of a task, or of a group with its tasks.
        folder: where relative paths begin; None where none may be.

    Raises:
        InputError: a file is missing or damaged, or relative without a folder.
    """
    found = deepcopy(dict(config))
    if isinstance(found.get("task"), list):
        members = [with_data(x, folder) if isinstance(x, Mapping) else x for x in found["task"]]
        return found | {"task": members}
    settings = found.get("dataset_kwargs") or {}
    files = settings.get("data_files")
    if found.get("dataset_path") not in _LOCAL or not files:
        return found
    splits = files if isinstance(files, Mapping) else {"train": files}
    placed = {
        split: [_placed(found, file, folder) for file in ([own] if isinstance(own, str) else own)]
        for split, own in splits.items()
    }
    lines = all(file.suffix == ".jsonl" for own in placed.values() for file in own)
    if lines and settings.keys() == {"data_files"} and not found.get("process_docs"):
        rows = {
            split: [document for file in own for document in _documents(file)]
            for split, own in placed.items()
        }
        return in_memory(found, rows)
    found["dataset_kwargs"] = settings | {
        "data_files": {split: [str(file) for file in own] for split, own in placed.items()}
    }
    return found


def _composed(path: Path) -> yaml.Node | None:
    try:
        return yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (OSError, ValueError, yaml.YAMLError) as error:
        told = " ".join(str(error).split())
        raise InputError(f"{path} must be a YAML file of a task, got: {told}. Mend it.") from error


def _code_in(path: Path, seen: tuple[Path, ...]) -> Iterator[str]:
    node = _composed(path)
    if node is None or path in seen:
        return
    yield from _code_in_node(node, path)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == "include":
                names = value.value if isinstance(value, yaml.SequenceNode) else [value]
                for name in names:
                    yield from _code_in((path.parent / name.value).resolve(), (*seen, path))


def _code_in_node(node: yaml.Node, path: Path) -> Iterator[str]:
    if not node.tag.startswith("tag:yaml.org,2002:") or "python" in node.tag:
        yield f"{path.name}:{node.start_mark.line + 1}: {node.tag} {node.value}"
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value in _CODE_KEYS and value.value not in ("false", "null"):
                yield f"{path.name}:{key.start_mark.line + 1}: {key.value}"
            yield from _code_in_node(value, path)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _code_in_node(item, path)


def _code_in_value(value: Any, name: str) -> Iterator[str]:
    if callable(value):
        # Our own functions are no stranger's: only Python that runs already can have put them here.
        if not str(getattr(value, "__module__", "")).startswith("bam_lab."):
            yield name
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if key in _CODE_KEYS and item and not isinstance(item, Memory):
                yield str(key)
            yield from _code_in_value(item, str(key))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _code_in_value(item, name)


def _placed(config: Config, file: str, folder: Path | None) -> Path:
    path = Path(file)
    if not path.is_absolute():
        if folder is None:
            raise InputError(
                f"{config.get('task')}: dataset_kwargs.data_files must be absolute in a "
                f"configuration without a file, got {file}. Write the whole path."
            )
        path = folder / path
    if not path.is_file() and "*" not in file:
        raise InputError(
            f"{config.get('task')}: {path} must hold the task's documents, got no such file. Mend "
            "dataset_kwargs.data_files; relative paths begin beside the task file."
        )
    return path


def _documents(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                document = json.loads(line)
            except ValueError as error:
                raise InputError(
                    f"{path}:{number} must be a JSON object, got: {error}. Mend the line."
                ) from error
            if not isinstance(document, dict):
                raise InputError(
                    f"{path}:{number} must be a JSON object, got {type(document).__name__}. Mend "
                    "the line."
                )
            yield document
