"""Templates: HTML with autoescape, LaTeX with its own delimiters and a `tex` escape filter."""

from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from bam_lab import resources

_TEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    # Without T1 fonts these three print as something else.
    "<": r"$<$",
    ">": r"$>$",
    "|": r"$|$",
    '"': "''",
    "−": r"$-$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "Σ": r"$\Sigma$",
    "²": r"$^2$",
    "§": r"\S{}",
    "…": r"\dots{}",
    "\n": " ",
}


def tex(value: object) -> str:
    """Escape text for LaTeX; a character that plain LaTeX cannot print becomes a question mark."""
    out = []
    for character in str(value):
        if character in _TEX:
            out.append(_TEX[character])
        elif (character.isascii() and character.isprintable()) or _latin(character):
            out.append(character)
        else:
            out.append("?")
    return "".join(out)


def _latin(character: str) -> bool:
    """Return whether LaTeX's default UTF-8 input knows this accented letter."""
    return character.isalpha() and 0xC0 <= ord(character) < 0x17F


def render_html(name: str, **values: Any) -> str:
    """Render an HTML template; everything that is not marked safe is escaped."""
    environment = Environment(
        loader=FileSystemLoader(resources.folder("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name).render(**values)


def render_tex(name: str, **values: Any) -> str:
    r"""Render a LaTeX template: `<< value | tex >>`, `<% block %>`, `<# comment #>`."""
    environment = Environment(
        loader=FileSystemLoader(resources.folder("templates")),
        autoescape=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        variable_start_string="<<",
        variable_end_string=">>",
        block_start_string="<%",
        block_end_string="%>",
        comment_start_string="<#",
        comment_end_string="#>",
    )
    environment.filters["tex"] = tex
    return environment.get_template(name).render(**values)
