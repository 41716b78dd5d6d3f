"""Fixtures that every part of the tests shares."""

from pathlib import Path

import pytest

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture
def fixture_ablation() -> Path:
    """Return the path of the tests' own ablation."""
    return FIXTURES / "ablation.yaml"
