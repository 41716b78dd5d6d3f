"""The built wheel, installed elsewhere without torch, runs on its own resources."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.slow


def run(*command, cwd):
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Return the `bin` folder of a fresh environment that holds the wheel and the core only."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT, cwd=folder)
    (wheel,) = folder.glob("bam_lab-*.whl")
    venv.create(folder / "env", with_pip=False)
    python = folder / "env" / "bin" / "python"
    constraints = ROOT / "constraints.txt"
    run(*pip, "--python", python, "install", "-q", "-c", constraints, wheel, cwd=folder)
    return python.parent


def test_no_torch_and_no_checkout(installed, tmp_path):
    code = "import importlib.util as u, bam_lab; print(u.find_spec('torch'), bam_lab.__file__)"
    out = run(installed / "python", "-c", code, cwd=tmp_path)
    assert out.startswith("None ")
    assert str(ROOT) not in out


def test_list(installed, tmp_path):
    out = run(installed / "bam-lab", "list", "--json", cwd=tmp_path)
    assert "bam-attention-routing" in {entry["id"] for entry in json.loads(out)}


def test_check(installed, tmp_path):
    kinds = ("configs", "ablations", "eval", "reports/published")
    count = sum(1 for kind in kinds for _ in (ROOT / kind).rglob("*.yaml"))
    assert f"{count} files are fine" in run(installed / "bam-lab", "check", cwd=tmp_path)


def test_tasks_and_suites(installed, tmp_path):
    """The core alone says what they need: the extra that asks them, a corpus, packages."""
    out = run(installed / "bam-lab", "list", "--suites", "--json", cwd=tmp_path)
    found = {one["name"]: one for one in json.loads(out)}
    assert found.keys() == {path.stem for path in (ROOT / "eval" / "suites").glob("*.yaml")}
    commands = {part["command"] for part in found["default"]["missing"]}
    assert commands >= {"pip install 'bam-lab[eval]'", "bam-lab data build"}
    out = run(installed / "bam-lab", "list", "--tasks", cwd=tmp_path)
    assert all(path.name in out for path in (ROOT / "eval" / "tasks").iterdir())


def test_plan(installed, tmp_path):
    command = ("plan", "bam-perplexity", "--scale", "bam-590m", "--json")
    made = json.loads(run(installed / "bam-lab", *command, cwd=tmp_path))
    assert made["models"]["kv-experts"]["params"]["total"] == 776_002_560


def test_run_says_which_extra_is_missing(installed, tmp_path):
    done = subprocess.run(
        [installed / "bam-lab", "run", "bam-perplexity", "--quiet"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "bam-lab[" in done.stderr + done.stdout


def test_typed_and_complete(installed):
    (package,) = (installed.parent / "lib").glob("*/site-packages/bam_lab")
    assert (package / "py.typed").is_file()
    for folder in ("configs", "ablations", "eval", "templates", "published"):
        assert any((package / "_resources" / folder).rglob("*.*")), folder
    assert not (package.parent / "tests").exists()
