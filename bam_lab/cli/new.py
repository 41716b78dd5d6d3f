"""`bam-lab new`: a question of the user's own, begun from one that exists.

The text is copied, comments and all; its name is changed, what only a shipped file says is left
out, and a line above each part says what can be changed there.
"""

import re
import shlex
from pathlib import Path
from typing import Annotated

import typer

from bam_lab.cli import options
from bam_lab.cli.output import console, print_json
from bam_lab.errors import InputError, SpecError
from bam_lab.record.files import explained, make_folder
from bam_lab.spec.base import NAME
from bam_lab.spec.messages import show
from bam_lab.spec.reader import load, parse_value

DROPPED = ("aliases", "answers")
"""Keys of the catalogue: other names of a table, and which reviewers' questions it answers."""
GUIDE = {
    "title": "What you ask, in your words. `source` says where the question is from.",
    "recipe": "A file of configs/recipe and one of configs/scale, or files beside this one.",
    "match": "What is equal between the arms: tokens, flops, params-total, device-time, ...",
    "baseline": "The arm that all others are compared with.",
    "replicates": "What each replicate redoes (mixture, branch or seed), and how many there are.",
    "common": "Laid under every arm that knows the key.",
    "arms": "One arm a line; what it leaves out is the paper's. `over: {KEY: [A, B]}` makes of one "
    "arm one for each value.",
    "settings": "Every arm is trained under every setting: {NAME: {dotted.path: value}}.",
    "budgets": "Every arm is trained for each of these multiples of the scale's tokens.",
    "report": "Columns, and the printed tables that stand beside ours: remove `published` if your "
    "arms are no longer theirs.",
    "claims": "Ids of ablations/claims.yaml about your arms; your own go into `own_claims:` "
    "(README).",
}


def new(
    name: Annotated[str, typer.Argument(metavar="ID", help="Name of the new question.")],
    like: Annotated[
        str, typer.Option("--like", metavar="ID", help="Id, alias or file of the one to copy.")
    ],
    to: Annotated[
        Path, typer.Option("--to", metavar="FOLDER", help="Where to write ID.yaml.")
    ] = Path(),
    json: options.Json = False,
) -> None:
    """Write ID.yaml, a question of your own, from one that exists; it never overwrites."""
    from bam_lab.spec.load import find_ablation, load_ablation

    path = to / f"{name}.yaml"
    _check_name(name)
    source = find_ablation(like)
    load_ablation(str(source))
    make_folder(to, "--to")
    _write(path, copied(source, name, like))
    try:
        arms = load_ablation(str(path)).arms
    except SpecError:  # the source names files that lie beside it
        path.unlink()
        raise
    if json:
        print_json({"path": str(path), "like": str(source), "arms": list(arms)})
        return
    out = console()
    count = "1 arm" if len(arms) == 1 else f"{len(arms)} arms"
    out.print(f"{path}: {count}, as in {source.stem}. Edit it; then:", soft_wrap=True)
    for verb in ("check", "plan", "reproduce"):
        out.print(f"  {shlex.join(['bam-lab', verb, str(path)])}", soft_wrap=True, style="dim")


def _write(path: Path, text: str) -> None:
    """Write a file that is not there yet, whole or not at all."""
    with explained(path, "--to"):
        try:
            file = path.open("x", encoding="utf-8")
        except FileExistsError:
            raise InputError(
                f"{path} must not exist yet: nothing is overwritten. Take another ID or --to."
            ) from None
        try:
            with file:
                file.write(text)
        except BaseException:
            path.unlink()
            raise


def _check_name(name: str) -> None:
    from bam_lab.spec.load import list_ablations

    if not re.fullmatch(NAME, name) or name.endswith((".yaml", ".yml")) or len(name) > 80:
        raise SpecError(
            "ID must be lower-case letters, digits, `-`, `_` and `.`, at most 80, got "
            f"{show(name)}. It is the file's name without .yaml."
        )
    for path in list_ablations():
        if name == path.stem or name in (load(path).data.get("aliases") or ()):
            raise SpecError(
                f"ID must be new, got {name}, which {path.stem} has already. Take another."
            )


def copied(source: Path, name: str, like: str) -> str:
    """Return the text of a question under another name, with a guide above each part."""
    made = [
        f"# {name}: say here what you ask, and why.",
        f"# Begun by `bam-lab new {name} --like {like}`; what that file says of itself:",
        "#",
    ]
    dropping = False
    for line in source.read_text(encoding="utf-8").splitlines():
        key = line.partition(":")[0]
        if re.match(r"[A-Za-z_]", line):
            dropping = key in DROPPED
            if key in GUIDE:
                made += [*([""] if made[-1] else []), f"# {GUIDE[key]}"]
        elif line.startswith("#"):
            dropping = False  # a comment at the margin is about what follows
        if not dropping:
            made.append(f"id: {_as_text(name)}" if line.startswith("id:") else line)
    return "\n".join(made) + "\n"


def _as_text(name: str) -> str:
    """Return a name as YAML takes it for text: `123` and `true` in quotes."""
    return name if parse_value(name) == name else f'"{name}"'
