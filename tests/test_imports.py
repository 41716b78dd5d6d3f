"""Start-up: the light verbs import nothing heavy, and little of anything."""

import os
import subprocess
import sys

import pytest

HEAVY = {
    "jinja2", "lightning", "matplotlib", "numpy", "pandas", "pytorch_lightning",
    "reasoning_gym", "scipy", "sklearn", "tokenizers", "torch", "transformers",
}  # fmt: skip
MODULES = 900

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
