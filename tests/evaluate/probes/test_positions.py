"""Gradients of learned positions, by hand."""

import pytest
import torch
import torch.nn.functional as F

from bam_lab.data.tokens.heldout import windows
from bam_lab.errors import SpecError
from bam_lab.evaluate.probes.positions import position_rows
from bam_lab.evaluate.probes.rows import COLUMNS
from bam_lab.model.context import Draw
from tests.evaluate.probes.probe_text import only, write_tokens
from tests.evaluate.probes.test_completion import system
from tests.model.cases import DENSE, METHODS, SEGMENT, model_of


def rows_of(model, tokens_dir, seq_len=50, most=3, segment_len=SEGMENT):
    return position_rows(model, tokens_dir, ["law", "code"], "test", seq_len, most, segment_len)


@pytest.mark.parametrize("name", ["dense", "lory-own_mean", "lory-bos", "btx-top-1"])
def test_by_hand(tmp_path, name):
    method, tokens_dir = DENSE if name == "dense" else METHODS[name], write_tokens(tmp_path)
    model = model_of(method, "learned")
    rows = rows_of(model, tokens_dir)
    assert all(tuple(row) == COLUMNS for row in rows)
    assert all(parameter.grad is None for parameter in model.parameters())
    gradients = []
    for domain in ("law", "code"):
        text = torch.from_numpy(windows(tokens_dir, domain, "test", 50, 150).tokens[:3])
        output = model(text[:, :-1], Draw(0, torch.Generator().manual_seed(0)))
        loss = F.cross_entropy(model.logits(output.hidden).flatten(0, 1), text[:, 1:].flatten())
        gradients.append(torch.autograd.grad(loss, model.position)[0][:50])
    for domain, own in zip(("law", "code", "*"), (*gradients, sum(gradients) / 2), strict=True):
        norms = own.norm(dim=1)
        for part, wanted in (("first", norms[:SEGMENT]), ("later", norms[SEGMENT:])):
            found = only(rows, domain=domain, part=part)
            assert found["value"] == pytest.approx(float(wanted.mean()), rel=1e-4)
            assert found["value"] > 0


def test_what_learns_no_positions(tmp_path):
    for name in ("dense", "ensemble"):
        with pytest.raises(
            SpecError, match="positions must be learned to have a gradient, got rope"
        ):
            rows_of(system(name), write_tokens(tmp_path))


def test_a_segment_without_a_later_one(tmp_path):
    model = model_of(DENSE, "learned")
    with pytest.raises(SpecError, match=r"segment_len must be from 1 to 49, .* got 50"):
        rows_of(model, write_tokens(tmp_path), segment_len=50)
