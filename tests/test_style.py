"""The size of files and functions, and a docstring at the head of each file."""

import ast
import io
import tokenize
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "bam_lab"
FILES = sorted(PACKAGE.rglob("*.py"))
FILE_LINES = 350
FUNCTION_LINES = 60


def relative(path):
    return path.relative_to(PACKAGE).as_posix()


def code_lines(text):
    """Return the line numbers that hold code: no comments, blank lines or docstrings."""
    skip = (
        tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
        tokenize.ENCODING, tokenize.ENDMARKER,
    )  # fmt: skip
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skip:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines -= set(range(node.lineno, node.end_lineno + 1))
    return lines


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_file_opens_with_a_docstring_and_has_one_subjects_length(path):
    text = path.read_text()
    assert ast.get_docstring(ast.parse(text)), "no docstring"
    assert len(code_lines(text)) <= FILE_LINES


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_functions_are_short(path):
    text = path.read_text()
    lines = code_lines(text)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            count = len(lines & set(range(node.lineno, node.end_lineno + 1)))
            assert count <= FUNCTION_LINES, f"{node.name} has {count} code lines"
