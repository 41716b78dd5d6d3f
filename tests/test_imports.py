"""Start-up: the light verbs import nothing heavy, and little of anything."""

import os
import resource
import subprocess
import sys

import pytest

HEAVY = {
    "jinja2", "lightning", "matplotlib", "numpy", "pandas", "pytorch_lightning",
    "reasoning_gym", "scipy", "sklearn", "tokenizers", "torch", "transformers",
}  # fmt: skip
MODULES = 900
SECONDS = 0.5

COMMANDS = {
    "help": ["--help"],
    "version": ["--version"],
    "list": ["list"],
    "check": ["check", "ablations/bam/bam-attention-routing.yaml"],
    "plan": ["plan", "bam-attention-routing"],
    "runs": ["runs", "list"],
    "doctor": ["doctor"],
}

COUNT = """
import sys
from bam_lab.cli.main import main
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
print("MODULES", *sys.modules, file=sys.stderr)
"""


def _environment(tmp_path):
    return {**os.environ, "BAM_LAB_STORE": str(tmp_path / "store")}


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_light_verbs_import_nothing_heavy(arguments, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", COUNT, *arguments],
        capture_output=True,
        text=True,
        env=_environment(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    modules = set(done.stderr.partition("MODULES ")[2].split())
    assert modules & HEAVY == set()
    assert len(modules) <= MODULES


@pytest.mark.parametrize("verb", ["help", "list", "check", "plan"])
def test_light_verbs_start_at_once(verb, tmp_path):
    """The least CPU time of five: what it costs, whatever else the machine does."""
    seconds = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "bam_lab", *COMMANDS[verb]],
            check=True,
            capture_output=True,
            env=_environment(tmp_path),
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(seconds) <= SECONDS, seconds
