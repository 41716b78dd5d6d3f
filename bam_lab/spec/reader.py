"""Read one YAML file into a spec, with the line and column of every problem.

YAML 1.2 through ruamel's composer: PyYAML would read `1e-3` as a string and `no` as False. Tags,
aliases and duplicate keys are refused: a spec says what it says once, in plain sight.
"""

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from bam_lab.errors import SpecError
from bam_lab.spec.messages import Loc, describe, real_path, show

MAX_BYTES = 1_000_000
MAX_DEPTH = 40
LARGEST = 2**64
"""Whole numbers of a file are not beyond this: no size here is, and arithmetic stays finite."""

Model = TypeVar("Model", bound=BaseModel)


@dataclass
class Document:
    """Hold one parsed file.

    Attributes:
        file: the name shown to the user.
        data: plain dicts, lists and scalars.
        positions: (line, column), from 1, of every path in `data`.
        overridden: paths that a command-line override wrote, with its text.
    """

    file: str
    data: dict[str, Any]
    positions: dict[Loc, tuple[int, int]]
    overridden: dict[Loc, str] = field(default_factory=dict)

    def where(self, loc: Loc) -> str:
        """Return `file:line:col` of the nearest path that stands in the file, or the override."""
        for written, text in self.overridden.items():
            shared = min(len(written), len(loc))
            if shared and written[:shared] == loc[:shared]:
                return text
        for length in range(len(loc), -1, -1):
            if loc[:length] in self.positions:
                line, column = self.positions[loc[:length]]
                return f"{self.file}:{line}:{column}"
        return self.file

    def problem(self, loc: Loc, text: str) -> str:
        """Return one full message line about `loc`."""
        return f"{self.where(loc)}: {'.'.join(map(str, loc))} {text}".replace(":  ", ": ")


def load(path: Path) -> Document:
    """Parse a YAML file whose root is a mapping.

    Raises:
        SpecError: it cannot be read, or has syntax errors, tags, aliases or duplicate keys.
    """
    text = _read_text(path)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    data, positions = _parsed(text, str(path))
    return Document(str(path), copy.deepcopy(data), dict(positions))


@lru_cache(maxsize=512)  # an ablation's files are read again for each of its settings
def _parsed(text: str, path: str) -> tuple[dict[str, Any], dict[Loc, tuple[int, int]]]:
    """Return a text's data, and where it stands.

    Raises:
        SpecError: as `load`.
    """
    yaml = YAML(typ="safe", pure=True)
    try:
        root = yaml.compose(text)
    except _INVALID as error:
        raise SpecError(_invalid(error, text, path)) from None
    if root is None:
        raise SpecError(f"{path}: the file must hold a mapping, got nothing. Fill it or remove it.")
    if not isinstance(root, MappingNode):
        got = "a list" if isinstance(root, SequenceNode) else "a single value"
        raise SpecError(
            f"{path}:1:1: the file must hold a mapping, got {got}. Start with `schema: 1`."
        )
    walk = _Walk(path, yaml)
    data = walk.value(root, ())
    if walk.problems:
        raise SpecError(walk.problems)
    return data, walk.positions


# ValueError, OverflowError: an escaped character that there is not.
_INVALID = (YAMLError, RecursionError, ValueError, OverflowError)


def _invalid(error: Exception, text: str, path: str) -> str:
    """Return what is wrong with a text that is no YAML, and where."""
    if isinstance(error, MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        place = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else path
        problem = error.problem or "cannot be parsed"
        return f"{place}: the file must be valid YAML: {problem}. Mend this line."
    if isinstance(error, ReaderError):
        line = text.count("\n", 0, error.position) + 1
        found = f"the character {chr(error.character)!r}"
        return f"{path}:{line}: the file must be valid YAML, got {found}. Remove it."
    if isinstance(error, RecursionError):
        return f"{path}: the file must be at most {MAX_DEPTH} levels deep. Flatten it."
    return f"{path}: the file must be valid YAML, got an escape like \\U that is no character."


def parse_value(text: str) -> Any:
    """Return one YAML value, as plain as those of a file.

    Raises:
        ValueError: it is no YAML, too deep, or has tags, aliases or duplicate keys.
    """
    yaml = YAML(typ="safe", pure=True)
    try:
        node = yaml.compose(text)
    except _INVALID as error:
        raise ValueError(str(error)) from None
    walk = _Walk("", yaml)
    value = None if node is None else walk.value(node, ())
    if walk.problems:
        raise ValueError(walk.problems[0])
    return value


def read(path: Path, model: type[Model]) -> Model:
    """Read one file into `model`.

    Raises:
        SpecError: with every problem of the file at once.
    """
    document = load(path)
    spec, problems = validate(document, model)
    if spec is None:
        raise SpecError(problems)
    return spec


def validate(document: Document, model: type[Model]) -> tuple[Model | None, list[str]]:
    """Validate a parsed file; return the spec, or None and every problem."""
    try:
        return model.model_validate(tuples(document.data)), []
    except ValidationError as error:
        return None, list(_problems(document, error, model))


def _problems(document: Document, error: ValidationError, model: type[BaseModel]) -> Iterator[str]:
    items = error.errors(include_url=False, include_context=True)
    for item in items:
        if item["type"] == "too_short" and any(_is_inside(other, item) for other in items):
            continue  # pydantic leaves out of a list what is wrong, then counts
        loc = real_path(document.data, item)
        yield document.problem(loc, describe(item, loc, model))


def _is_inside(one: Any, other: Any) -> bool:
    outer = other["loc"]
    return len(one["loc"]) > len(outer) and one["loc"][: len(outer)] == outer


def tuples(value: Any) -> Any:
    """Return lists as tuples, which strict frozen models want."""
    if isinstance(value, dict):
        return {key: tuples(inner) for key, inner in value.items()}
    return tuple(tuples(inner) for inner in value) if isinstance(value, list) else value


def _read_text(path: Path) -> str:
    try:
        raw = path.read_bytes()
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise SpecError(
            f"{path}: the file must be readable, got: {reason}. Check the path."
        ) from None
    if len(raw) > MAX_BYTES:
        raise SpecError(
            f"{path}: the file must be under 1 MB, got {len(raw):,} bytes. Is it a spec?"
        )
    if not raw.strip():
        raise SpecError(f"{path}: the file must not be empty. Fill it or remove it.")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        text = "\0"
        if b"\0" not in raw:
            line = raw.count(b"\n", 0, error.start) + 1
            found = f"the byte {raw[error.start]:#04x}"
            raise SpecError(
                f"{path}:{line}: the file must be UTF-8 text, got {found}. Save it as UTF-8."
            ) from None
    if "\0" in text:
        raise SpecError(f"{path}: the file must be UTF-8 text, got binary data. Is it a spec?")
    return text


# Control characters but for tab and line ends, and half surrogates: what no file and no page holds.
_UNSEEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff]")


class _Walk:
    """Turn composed nodes into plain data, collecting positions and problems on the way."""

    def __init__(self, file: str, yaml: Any):
        self.file = file
        self.construct = yaml.constructor.construct_object
        self.resolve = yaml.resolver.resolve
        self.positions: dict[Loc, tuple[int, int]] = {}
        self.problems: list[str] = []
        self.seen: set[int] = set()

    def value(self, node: Node, loc: Loc) -> Any:
        mark = node.start_mark
        self.positions.setdefault(loc, (mark.line + 1, mark.column + 1))
        if id(node) in self.seen:
            return self.refuse(loc, "must not be an alias. Write the value out")
        self.seen.add(id(node))
        if len(loc) > MAX_DEPTH:
            return self.refuse(loc[:3], f"must be at most {MAX_DEPTH} levels deep. Flatten it")
        if str(node.tag) != self.plain_tag(node):
            return self.refuse(loc, f"must not carry a tag, got {node.tag}. Remove it")
        if isinstance(node, MappingNode):
            return self.mapping(node, loc)
        if isinstance(node, SequenceNode):
            return [self.value(child, (*loc, i)) for i, child in enumerate(node.value)]
        assert isinstance(node, ScalarNode)
        try:
            value = self.construct(node)
        except (ValueError, YAMLError):
            return self.refuse(loc, f"must be a plain value, got {show(node.value)}. Quote it")
        if isinstance(value, int) and abs(value) > LARGEST:
            return self.refuse(loc, "must be at most 2^64. Check its digits")
        if isinstance(value, str) and (odd := _UNSEEN.search(value)):
            return self.refuse(loc, f"must be plain text, got the character {odd[0]!r}. Remove it")
        if not isinstance(value, str | int | float | bool | None):
            return str(node.value)  # a timestamp: specs hold none, so it is text
        return value

    def plain_tag(self, node: Node) -> str:
        """Return the tag that the node has when none is written."""
        implicit = (isinstance(node, ScalarNode) and not node.style, True)
        return str(self.resolve(type(node), node.value, implicit))

    def mapping(self, node: MappingNode, loc: Loc) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, child in node.value:
            key = key_node.value if isinstance(key_node, ScalarNode) else None
            mark = key_node.start_mark
            place = (mark.line + 1, mark.column + 1)
            if key is None:
                self.positions[(*loc, "?")] = place
                self.refuse((*loc, "?"), "must be a plain key. Use a word")
                continue
            if key in result:
                self.problems.append(
                    f"{self.file}:{place[0]}:{place[1]}: {'.'.join(map(str, (*loc, key)))} "
                    "must stand once, got a duplicate key. Remove one of the two."
                )
                continue
            self.positions[(*loc, key)] = place
            result[key] = self.value(child, (*loc, key))
        return result

    def refuse(self, loc: Loc, text: str) -> None:
        line, column = self.positions.get(loc, (1, 1))
        self.problems.append(f"{self.file}:{line}:{column}: {'.'.join(map(str, loc))} {text}.")
