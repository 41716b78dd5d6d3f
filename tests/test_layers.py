"""The structure: which folder may import which, no cycles, and the doors to heavy packages."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "bam_lab"
FILES = sorted(PACKAGE.rglob("*.py"))

# Folder (or top-level file) -> what else of bam_lab it may import. Itself is always allowed.
ALLOWED = {
    "__init__": set(),
    "__main__": {"cli"},
    "errors": set(),
    "resources": set(),
    "spec": {"errors", "resources"},
    "record": {"errors", "spec"},
    "track": {"errors", "spec", "record"},
    "cost": {"errors", "spec", "record"},
    "data": {"errors", "resources", "spec", "record"},
    "model": {"errors", "spec"},
    "upcycle": {"errors", "spec", "record", "cost", "model"},
    "train": {"errors", "spec", "record", "model", "data"},
    "hf": {"errors", "spec", "record", "model"},
    "methods": {"errors", "spec", "record", "data", "hf", "model", "upcycle", "train"},
    "evaluate": {"errors", "spec", "record", "data", "model"},
    "run": {
        "errors", "spec", "record", "track", "cost", "data", "model", "upcycle", "train", "methods",
        "evaluate", "hf",
    },
    "report": {"errors", "resources", "spec", "record", "cost"},
    "cli": {
        "__init__", "errors", "resources", "spec", "record", "track", "cost", "data", "evaluate",
        "run", "report",
    },
}  # fmt: skip

NO_TORCH = {"errors", "resources", "spec", "record", "track", "cost", "report", "cli"}

# Package -> the only places (prefixes of paths below bam_lab) that may import it.
DOORS = {
    "lightning": ("methods/", "train/", "data/tokens/datamodule.py", "run/stages"),
    "tokenizers": ("data/tokens/tokenizer.py",),
    "rensa": ("data/corpus/dedup.py",),
    "safetensors": ("model/checkpoint.py",),
    "sklearn": ("data/order/embed.py",),
    "threadpoolctl": ("data/order/",),
    "faiss": ("data/order/neighbours.py",),
    "reasoning_gym": ("data/sources/generate.py",),
    "pyarrow": ("record/tables.py", "data/sources/parquet.py", "data/sources/unpack.py"),
    "datasets": ("data/sources/hub.py",),
    "charset_normalizer": ("data/sources/decode.py",),
    "jinja2": ("report/",),
    "matplotlib": ("report/",),
    "scipy": ("report/",),
    "pandas": ("report/", "evaluate/"),
    "typer": ("cli/",),
    "ruamel": ("spec/",),
    "lm_eval": ("evaluate/harness.py",),
    "optuna": ("run/sweep.py",),
    "wandb": ("track/",),
    "mlflow": ("track/",),
    "transformers": ("hf/",),
    "peft": ("hf/",),
}


def relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def layer(path: Path) -> str:
    return relative(path).partition("/")[0].removesuffix(".py")


def imports(path: Path, *, module_level: bool = False) -> Iterator[str]:
    """Yield the dotted names that a file imports; those of `from a import b` as `a.b` too."""
    tree = ast.parse(path.read_text())
    for node in _module_level(tree) if module_level else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def _module_level(node: ast.AST) -> Iterator[ast.AST]:
    """Walk what runs at import: no function bodies, no `if TYPE_CHECKING:`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        yield child
        yield from _module_level(child)


def test_every_folder_has_its_place():
    assert {layer(path) for path in FILES} <= ALLOWED.keys()


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_imports_only_what_its_layer_allows(path):
    own = layer(path)
    for name in imports(path):
        if name == "bam_lab" or not name.startswith("bam_lab."):
            continue
        other = name.split(".")[1]
        if other == "__version__":
            other = "__init__"
        assert other == own or other in ALLOWED[own], f"{relative(path)} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_heavy_packages_come_through_their_doors(path):
    for name in imports(path):
        top = name.partition(".")[0]
        places = DOORS.get(top)
        assert places is None or relative(path).startswith(places), f"imports {name}"
        assert top != "torch" or layer(path) not in NO_TORCH, f"imports {name}"


def test_no_cycles():
    modules = {_module_name(path): path for path in FILES}
    edges = {
        name: {found for found in imports(path, module_level=True) if found in modules} - {name}
        for name, path in modules.items()
    }
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join((*trail[trail.index(name) :], name))
        if name not in done:
            for other in sorted(edges[name]):
                visit(other, (*trail, name))
            done.add(name)

    for name in modules:
        visit(name, ())


def _module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_the_data_folders_are_no_packages():
    for folder in ("configs", "ablations", "eval", "reports"):
        assert not list((PACKAGE.parent / folder).rglob("__init__.py"))
