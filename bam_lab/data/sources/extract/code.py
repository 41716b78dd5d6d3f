"""Programs: source files, and the docstrings in them."""

import ast
import re
import warnings

from bam_lab.data.sources.extract.text import Documents, Members

_TESTS = re.compile(r"(^|/)(tests?|testing|benchmarks|_?vendor|typeshed)/|/test_")
_MINIFIED_LINE = 1000


def docstrings(members: Members) -> Documents:
    """Yield the docstrings of each top-level class or function, with those of its methods.

    Sections of mere tests (Sage's `TESTS::`) are cut off.
    """
    for name, content in members:
        if _TESTS.search(name):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # invalid escapes in old string literals
                module = ast.parse(content)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        yield name, _docstring(module)
        for node in module.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                blocks = [_docstring(inner) for inner in ast.walk(node)]
                yield f"{name}#{node.name}", "\n\n".join(filter(None, blocks))


def _docstring(node: ast.AST) -> str:
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return ""
    text = re.split(r"^TESTS?::? *$", ast.get_docstring(node) or "", maxsplit=1, flags=re.M)[0]
    return text.strip()


def python_files(members: Members) -> Documents:
    """Yield Python files whole, without tests, vendored copies and tables of data."""
    for name, content in members:
        if _TESTS.search(name):
            continue
        text = content.decode("utf-8", errors="replace")
        if not _is_data(text):
            yield name, text


def source_files(members: Members) -> Documents:
    """Yield files of any language as `python_files` does, and without minified ones."""
    for name, text in python_files(members):
        if max(map(len, text.split("\n"))) <= _MINIFIED_LINE:
            yield name, text


def _is_data(text: str) -> bool:
    return sum(text.count(digit) for digit in "0123456789") >= 0.1 * max(len(text), 1)
