"""The README's commands and code work: cheap ones run, dear ones parse."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
import typer
from pydantic import TypeAdapter

from bam_lab.cli.main import app
from bam_lab.cost.match import solve
from bam_lab.report.words import words
from bam_lab.spec.ablation import MatchMode
from bam_lab.spec.claim_tests import Test
from bam_lab.spec.load import list_ablations, load_ablation
from bam_lab.spec.reader import parse_value
from tests.cli.command import bam_lab
from tests.conftest import FIXTURES

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()
CHEAP = {"list", "plan", "check", "runs", "doctor"}
MINE = "my-question"
"""A question of the reader's own, which `new` writes and blocks of YAML then change."""


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
    if f"{MINE}.yaml" in arguments:
        mine = str(begun(tmp_path))
        arguments = [mine if word == f"{MINE}.yaml" else word for word in arguments]
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


ARMS = [block for block in blocks("yaml") if block.startswith("common:")]
PARTS = [block for block in blocks("yaml") if block not in ARMS]
PARTS += re.findall(r"`((?:settings|budgets|at): [\[{][^`\n]+)`", TEXT)
ROWS = re.findall(r"^\| `(\{.*\})` \| (.*) \|$", TEXT, re.MULTILINE)


@pytest.mark.parametrize("block", ARMS)
def test_arms(block, tmp_path):
    """Every line is an arm that is checked and priced."""
    lines = (FIXTURES / "systems.yaml").read_text().splitlines()
    kept = lines[: lines.index("common:")] + block.splitlines() + lines[lines.index("report:") :]
    path = tmp_path / "systems.yaml"
    path.write_text("\n".join(kept))
    resolved = load_ablation(str(path), scale="nano")
    assert len(resolved.arms) > 30
    assert set(solve(resolved)) == set(resolved.arms)


def begun(folder):
    """Return the question that the README's `bam-lab new` writes."""
    command = next(command for command in commands("bam-lab") if command[:2] == ["new", MINE])
    done = bam_lab(*command, "--to", str(folder))
    assert done.code == 0, done.err
    return folder / f"{MINE}.yaml"


def changed(folder, *blocks):
    """Return the same question with the blocks' parts instead of its own."""
    parts = parse_value(begun(folder).read_text())
    for block in blocks:
        parts |= parse_value(block)
    (folder / f"{MINE}.yaml").write_text(json.dumps(parts))
    return str(folder / f"{MINE}.yaml"), parts


@pytest.mark.parametrize("block", PARTS)
def test_own_question(block, tmp_path):
    """Every block is planned in the copy, at its scale and at those it has something for."""
    path, parts = changed(tmp_path, block)
    for scale in (None, *parts.get("at", {})):
        resolved = load_ablation(path, scale=scale)
        assert set(solve(resolved)) == set(resolved.arms)
    names = re.findall(r"# ((?:[\w-]+, )+)\.\.\.$", block, re.MULTILINE)
    assert {name for line in names for name in line.split(", ")[:-1]} <= set(resolved.arms)


def test_every_match_mode(tmp_path):
    (arms,) = [block for block in PARTS if "\nmatch:" in block]
    (settings,) = [block for block in PARTS if block.startswith("settings:\n")]
    modes = []
    for cell, _ in ROWS:
        if not cell.startswith("{on:"):
            continue
        folder = tmp_path / str(len(modes))
        folder.mkdir()
        across = [settings] if "across" in cell else []
        path, parts = changed(folder, arms, *across, f"match: {cell}")
        modes.append(parts["match"]["on"])
        assert solve(load_ablation(path))
    assert {*modes} == {*get_args(MatchMode)}


def test_every_kind_of_claim_in_the_words_of_reports():
    read_as = TypeAdapter(Test)
    cells = [(cell, said) for cell, said in ROWS if cell.startswith("{test:")]
    tests = [read_as.validate_json(json.dumps(parse_value(cell))) for cell, _ in cells]
    assert [words(test) for test in tests] == [said for _, said in cells]
    kinds = {
        get_args(kind.model_fields["test"].annotation)[0] for kind in get_args(get_args(Test)[0])
    }
    assert {test.test for test in tests} == kinds


def test_the_number_of_ablations():
    assert f"Version 0.1 has {len(list_ablations())} ablations" in TEXT


def test_named_paths_exist():
    for name in re.findall(r"`([a-zA-Z_./-]+)`", TEXT):
        if "/" in name and not name.startswith((".bam-lab", ".venv")):
            assert (ROOT / name).exists(), name
