"""How numbers and tables look in the terminal, at 80 columns and wider."""

import json
import re
import sys
import unicodedata
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table


def console() -> Console:
    """Return the console of standard output; plain text where that is no terminal.

    Brackets in titles, values and paths are text; what has tags of ours says `markup=True`.
    """
    return Console(highlight=False, soft_wrap=False, markup=False)


def table(*columns: str, title: str = "") -> Table:
    """Return a table without frames; a column whose name starts with `>` is right-aligned."""
    made = Table(
        box=box.SIMPLE_HEAD,
        title=title or None,
        title_justify="left",
        title_style="bold",
        header_style="bold",
        show_edge=False,
        pad_edge=False,
        padding=(0, 1),
    )
    for column in columns:
        right = column.startswith(">")
        made.add_column(
            column.removeprefix(">"),
            justify="right" if right else "left",
            no_wrap=right,
            overflow="ellipsis" if right else "fold",  # names are never cut off
        )
    return made


def print_json(data: Any) -> None:
    """Write data to standard output as JSON; what a terminal would obey is escaped."""
    text = json.dumps(data, indent=2, ensure_ascii=False)
    sys.stdout.write(_UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")


# Control characters, marks that turn the direction of text, half surrogates; JSON's own line ends
# stay. All lie below U+10000.
_UNSEEN = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff]"
)


def printable(text: str) -> str:
    """Return text of the user's for one line: nothing in it that a terminal would obey."""

    def shown(character: str) -> str:
        if character in "\t\n\r":
            return " "
        seen = character.isprintable() or unicodedata.category(character) == "Zs"
        return character if seen else "\N{REPLACEMENT CHARACTER}"

    return "".join(map(shown, text))


def amount(value: float) -> str:
    """Return a count with three significant digits: 587M, 1.70M, 55.1T."""
    for factor, suffix in (
        (1e21, "Z"),
        (1e18, "E"),
        (1e15, "P"),
        (1e12, "T"),
        (1e9, "G"),
        (1e6, "M"),
        (1e3, "k"),
    ):
        if abs(value) >= factor * 0.9995:
            return f"{_three(value / factor)}{suffix}"
    return f"{value:g}"


def _three(value: float) -> str:
    return (
        f"{value:.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
    )


def duration(seconds: float) -> str:
    """Return a time with its two largest units: 8 s, 5 min 52 s, 3 h 10 min, 12 d 04 h."""
    if 0 < seconds < 1:
        return "< 1 s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"
    if seconds < 86400:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60):02d} min"
    if seconds >= 2 * 365 * 86400:
        return f"{seconds / (365 * 86400):,.0f} years"
    days, rest = divmod(seconds, 86400)
    return f"{int(days):,} d {int(rest // 3600):02d} h"


def size(count: float) -> str:
    """Return bytes in decimal units: 850 MB, 4.2 GB."""
    if count < 1e6:
        return f"{count / 1e3:.0f} kB"
    if count < 1e9:
        return f"{count / 1e6:.0f} MB"
    return f"{count / 1e9:.1f} GB" if count < 1e12 else f"{count / 1e12:.1f} TB"
