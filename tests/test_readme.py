"""The README's commands and code work: cheap ones run, dear ones parse."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from bam_lab.cli.main import app
from bam_lab.cost.match import solve
from bam_lab.spec.load import load_ablation
from tests.conftest import FIXTURES

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()
CHEAP = {"list", "plan", "check", "runs", "doctor"}


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def commands(first):
    """Return the command lines that start with a word, comments left out."""
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    lines += re.findall(r"`([^`\n]+)`", TEXT)
    parts = [shlex.split(line, comments=True) for line in lines if line.startswith(f"{first} ")]
    return [part[1:] for part in parts]


@pytest.mark.parametrize("arguments", commands("bam-lab"), ids=" ".join)
def test_command(arguments, tmp_path, monkeypatch):
    if arguments == ["run"]:  # "two `bam-lab run` on one store"
        return
    verb = arguments[0]
    if verb not in CHEAP:
        parse(arguments)
        return
    monkeypatch.setenv("BAM_LAB_STORE", str(tmp_path / "store"))
    done = subprocess.run(
        [sys.executable, "-m", "bam_lab", *arguments], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def parse(arguments):
    """Parse a command line, and run nothing; a usage error is raised."""
    command, names = typer.main.get_command(app), list(arguments)
    while hasattr(command, "commands"):
        command = command.commands[names.pop(0)]
    command.make_context("bam-lab", names)


@pytest.mark.parametrize("arguments", commands("make"), ids=" ".join)
def test_make_target(arguments):
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(rf"^{arguments[0]}:", makefile, re.MULTILINE)
    for setting in arguments[1:]:
        assert f"{setting.partition('=')[0]} ?=" in makefile


def test_contributing_names_every_target():
    makefile = (ROOT / "Makefile").read_text()
    targets = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert targets is not None
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert [name for name in targets.group(1).split() if f"`make {name}`" not in text] == []


@pytest.mark.parametrize("code", blocks("python"))
def test_python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "'soft'" in done.stdout


@pytest.mark.parametrize("block", blocks("yaml"))
def test_arms(block, tmp_path):
    """Every line is an arm that is checked and priced."""
    lines = (FIXTURES / "systems.yaml").read_text().splitlines()
    kept = lines[: lines.index("common:")] + block.splitlines() + lines[lines.index("report:") :]
    path = tmp_path / "systems.yaml"
    path.write_text("\n".join(kept))
    resolved = load_ablation(str(path), scale="nano")
    assert len(resolved.arms) > 30
    assert set(solve(resolved)) == set(resolved.arms)


def test_named_paths_exist():
    for name in re.findall(r"`([a-zA-Z_./-]+)`", TEXT):
        if "/" in name and not name.startswith((".bam-lab", ".venv")):
            assert (ROOT / name).exists(), name
