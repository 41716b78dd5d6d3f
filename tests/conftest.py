"""Fixtures that every part of the tests shares."""

from pathlib import Path

import pytest
from jaxtyping import install_import_hook

# Shapes written in `model/` are checked in tests only; before anything imports it.
install_import_hook("bam_lab.model", "beartype.beartype")

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture
def fixture_ablation() -> Path:
    """Return the path of the tests' own ablation."""
    return FIXTURES / "ablation.yaml"
