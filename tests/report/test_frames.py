"""The data frame holds every cell, with its reason where it is missing."""

import math

import pytest

from bam_lab.errors import InputError
from bam_lab.report.frames import cells
from bam_lab.report.render import render


def test_cells(five, tmp_path):
    root, index = five
    rendered = render(root, index, tmp_path)
    frame = cells(tmp_path / "results.json")
    assert rendered.paths and len(frame) > 100
    arms = frame[(frame["role"] == "arm") & (frame["domain"] == "code")]
    assert len(arms) == 5 * arms["name"].nunique()
    lost = arms[(arms["name"] == "top-1") & (arms["replicate"] == 4)].iloc[0]
    assert math.isnan(lost["perplexity"]) and lost["missing"]
    held = arms[arms["name"] == "btx"].iloc[0]
    assert held["perplexity"] == pytest.approx(math.exp(held["nll"]))


def test_a_file_that_is_no_results(tmp_path):
    path = tmp_path / "results.json"
    path.write_text("{}")
    with pytest.raises(InputError, match="must be a results"):
        cells(path)
