"""Sliding windows: every token once, after the context that the rule says."""

import numpy as np
import pytest
import torch

from bam_lab.data.tokens.encode import documents, stream
from bam_lab.errors import SpecError
from bam_lab.evaluate.probes.rows import COLUMNS
from bam_lab.evaluate.probes.sliding import sliding_rows
from tests.evaluate.probes.probe_text import END, LENGTHS, only, write_tokens
from tests.evaluate.probes.test_completion import system


def rows_of(model, tokens_dir, again=16, seq_len=32, max_tokens=1000):
    asked = (["law", "code"], "test", seq_len, again, max_tokens, "float32")
    return sliding_rows(model, tokens_dir, *asked)


def by_hand(model, tokens_dir, domain, seq_len, again):
    """Score each token by a pass of its own, from what its window begins with."""
    text, losses = stream(tokens_dir, domain, "test"), []
    for document in documents(tokens_dir, domain, "test"):
        start, length = int(document["start"]), int(document["length"])
        own = [END, *text[start : start + length].tolist()]
        for place in range(1, len(own)):
            begin, last = 0, seq_len  # of the window, in `own`; the token before end is at 0
            while place >= last:
                begin = last - again
                last = last + seq_len - again
            tokens = torch.tensor([own[begin:place]])
            log_probs = model.logits(model(tokens).hidden)[0, -1].log_softmax(-1)
            losses.append(-float(log_probs[own[place]]))
    return losses


@torch.no_grad()
@pytest.mark.parametrize(("seq_len", "again"), [(32, 16), (32, 31), (20, 1)])
def test_each_token_is_scored_once_by_hand(tmp_path, seq_len, again):
    model, tokens_dir = system("dense"), write_tokens(tmp_path)
    rows = rows_of(model, tokens_dir, again, seq_len)
    assert all(tuple(row) == COLUMNS for row in rows)
    for domain in ("law", "code"):
        losses = by_hand(model, tokens_dir, domain, seq_len, again)
        found = only(rows, domain=domain, metric="nll")
        assert found["n"] == len(losses) == sum(length for length, _ in LENGTHS[domain])
        assert found["value"] == pytest.approx(np.mean(losses), rel=1e-5)
    both = [only(rows, domain=d, metric="nll")["value"] for d in ("law", "code")]
    assert only(rows, domain="*", metric="nll")["value"] == pytest.approx(np.mean(both))


@pytest.mark.parametrize("name", ["lory-uniform", "lory-bos", "ensemble"])
def test_every_method_with_a_rule_of_inference_can_be_asked(tmp_path, name):
    rows = rows_of(system(name), write_tokens(tmp_path))
    rule = "segment" if name.startswith("lory") else "prompt"
    assert {row["rule"] for row in rows} == {rule} and {row["context"] for row in rows} == {32}


def test_a_window_scores_something_and_whole_documents_are_read(tmp_path):
    model, tokens_dir = system("dense"), write_tokens(tmp_path)
    for again in (0, 32):
        with pytest.raises(SpecError, match="context must be from 1 to 31 tokens"):
            rows_of(model, tokens_dir, again)
    few = rows_of(model, tokens_dir, max_tokens=60)
    assert only(few, domain="law", metric="nll")["n"] == LENGTHS["law"][0][0]
