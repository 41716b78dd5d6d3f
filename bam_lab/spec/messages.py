"""Turn pydantic's errors into sentences of one form: what must hold, what was got, what to do."""

import difflib
import types
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from bam_lab.errors import SpecError
from bam_lab.spec.base import NAME

Loc = tuple[str | int, ...]
Model = TypeVar("Model", bound=BaseModel)


MOST_NAMED = 20
"""Words that a message lists at most."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return `Did you mean X?`, or the known words when nothing is near."""
    words = sorted(set(known))
    close = [one for one in words if one.lower() == word.lower()]
    close = close or difflib.get_close_matches(word, words, n=1, cutoff=0.5)
    if close:
        return f"Did you mean `{close[0]}`?"
    if len(words) > MOST_NAMED:
        return f"Known: {', '.join(words[:MOST_NAMED])} and {len(words) - MOST_NAMED} more."
    return f"Known: {', '.join(words)}." if words else "Remove it."


def show(value: Any) -> str:
    """Return a value as the user wrote it, shortened."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, int) and abs(value) >= 10**60:
        return "a number of more than 60 digits"
    text = "null" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def describe(item: Any, loc: Loc, model: type[BaseModel]) -> str:
    """Return what is wrong at `loc`, without the place.

    Args:
        item: one entry of `ValidationError.errors()`, its path counted from `model` on.
        loc: its path in the file, union tags removed.
        model: the root model, for the known keys.
    """
    kind, context, got = item["type"], item.get("ctx", {}), show(item["input"])
    match kind:
        case "extra_forbidden":
            known = known_keys(model, item["loc"][:-1])
            return f"must be a known key. {nearest(str(loc[-1]), known)}"
        case "missing":
            return "must be given. Add it."
        case "literal_error" if loc and loc[-1] == "schema":
            return f"must be 1, got {got}. Written for a newer bam-lab? Upgrade it."
        case "literal_error":
            return f"must be {context['expected']}, got {got}."
        case "union_tag_invalid":
            tag = str(context["discriminator"]).strip("'")
            return f"must have a {tag} of {context['expected_tags']}, got {context['tag']!r}."
        case "union_tag_not_found":
            return f"must name its {context['discriminator']!s}. Add it."
        case "greater_than" | "greater_than_equal" | "less_than" | "less_than_equal":
            sign = {"greater_than": ">", "greater_than_equal": ">=", "less_than": "<"}.get(
                kind, "<="
            )
            return f"must be {sign} {next(iter(context.values()))}, got {got}."
        case "string_pattern_mismatch" if context["pattern"] != NAME:
            return f"must match {context['pattern']}, got {got}."
        case "string_pattern_mismatch":
            return f"must be lower-case letters, digits, `-`, `_` and `.`, got {got}. Rename it."
        case "string_too_long":
            return f"must have at most {context['max_length']} characters, got {got}. Shorten it."
        case "string_type" if isinstance(item["input"], int | float):
            return f"must be a string, got {got}. Quote it."
        case "too_short" | "too_long":
            few = kind == "too_short"
            wanted = context["min_length" if few else "max_length"]
            most, cure = ("least", "Add") if few else ("most", "Remove")
            things = f"{wanted} {'item' if wanted == 1 else 'items'}"
            return f"must hold at {most} {things}, got {context['actual_length']}. {cure} some."
        case "value_error" if isinstance(item["input"], dict):  # a rule between keys, in full
            return f"is wrong: {str(item['msg']).removeprefix('Value error, ')}."
        case "model_type" | "dict_type" | "model_attributes_type":
            return f"must be a mapping, got {got}."
        case "tuple_type" | "list_type":
            return f"must be a list, got {got}."
    text = str(item["msg"]).removeprefix("Input should be ").removeprefix("Value error, ")
    return f"must be {text.replace('a valid i', 'an i').replace('a valid ', 'a ')}, got {got}."


def checked(model: type[Model], **settings: Any) -> Model:
    """Return a spec made in code.

    Raises:
        SpecError: every problem, told as one of a file is.
    """
    try:
        return model(**settings)
    except ValidationError as error:
        places = [(item, real_path(settings, item)) for item in error.errors()]
        raise SpecError(
            [f"{'.'.join(map(str, loc))} {describe(item, loc, model)}" for item, loc in places]
        ) from error


def real_path(data: Any, item: Any) -> Loc:
    """Return the path of an error of pydantic's without the union tags in it.

    A missing last key stays. A tag may share its name with a key (`top_k`): it is a tag where the
    path goes on below a value that holds nothing.
    """
    path: list[str | int] = []
    loc = tuple(part for part in item["loc"] if part != "[key]")  # what is wrong is a key itself
    for index, part in enumerate(loc):
        last = index == len(loc) - 1
        if isinstance(data, dict) and part in data:
            inner = data[str(part)]
        elif isinstance(data, list | tuple) and isinstance(part, int) and part < len(data):
            inner = data[part]
        elif last:
            if item["type"] == "missing":
                path.append(part)
            break
        else:
            continue
        if last or isinstance(inner, dict | list | tuple):
            path.append(part)
            data = inner
    return tuple(path)


def known_keys(model: type[BaseModel], loc: Loc) -> list[str]:
    """Return the keys that the model at `loc` (a path with union tags) allows."""
    annotations: list[Any] = [model]
    for part in loc:
        models = [m for a in annotations for m in _models(a)]
        if len(models) > 1 or any(part not in m.model_fields and _has_tag(m, part) for m in models):
            annotations = [m for m in models if _has_tag(m, part)]
        else:
            annotations = [inner for a in annotations for inner in _step(a, part)]
    return [key for a in annotations for m in _models(a) for key in _aliases(m)]


def _has_tag(model: type[BaseModel], tag: str | int) -> bool:
    return any(tag in get_args(field.annotation) for field in model.model_fields.values())


def _aliases(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) is Annotated:
        yield from _models(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, types.UnionType):
        for inner in get_args(annotation):
            yield from _models(inner)


def _step(annotation: Any, part: str | int) -> Iterator[Any]:
    for model in _models(annotation):
        for name, field in model.model_fields.items():
            if part in (name, field.alias):
                yield field.annotation
    if get_origin(annotation) in (dict, list, tuple):
        yield get_args(annotation)[1 if get_origin(annotation) is dict else 0]
