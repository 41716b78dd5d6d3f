"""The first segment of held-out windows apart: both parts are the whole."""

import numpy as np
import pytest
import torch

from bam_lab.errors import SpecError
from bam_lab.evaluate.heldout import score
from bam_lab.evaluate.probes.first_segment import first_segment_rows
from bam_lab.evaluate.probes.rows import COLUMNS
from tests.evaluate.probes.probe_text import END, only, write_tokens
from tests.evaluate.probes.test_completion import system
from tests.model.cases import SEGMENT


def rows_of(model, tokens_dir, seq_len=50, segment_len=SEGMENT):
    return first_segment_rows(
        model, tokens_dir, ["law", "code"], "test", seq_len, 1000, "float32", segment_len
    )


@pytest.mark.parametrize("name", ["dense", "lory-own_mean", "lory-bos", "ensemble", "smear"])
def test_both_parts_are_the_whole(tmp_path, name):
    model, tokens_dir = system(name), write_tokens(tmp_path)
    rows = rows_of(model, tokens_dir)
    assert all(tuple(row) == COLUMNS for row in rows)
    whole, _ = score(model, tokens_dir, ["law", "code"], "test", 50, 1000, "float32")
    for domain in ("law", "code"):
        own = [row for row in rows if row["domain"] == domain]
        tokens = [only(own, part=p, metric="tokens")["value"] for p in ("first", "later")]
        losses = [only(own, part=p, metric="nll")["value"] for p in ("first", "later")]
        wanted = {
            r["metric"]: r["value"] for r in whole if (r["domain"], r["source"]) == (domain, "*")
        }
        assert sum(tokens) == wanted["tokens"]
        total = sum(n * loss for n, loss in zip(tokens, losses, strict=True))
        assert total == pytest.approx(wanted["nll"] * wanted["tokens"], rel=1e-6)


@torch.no_grad()
def test_the_first_segment_by_hand(tmp_path):
    """What its tokens predict, in each window; end-of-text is not scored."""
    model, tokens_dir = system("lory-uniform"), write_tokens(tmp_path)
    text = np.append(END, np.load(tokens_dir / "code.test.npy").astype(np.int64))
    total, n = 0.0, 0
    for start in range(0, len(text) - 1, 50):
        window = torch.from_numpy(text[start : start + 51])[None]
        window = torch.nn.functional.pad(window, (0, 51 - window.shape[1]))
        log_probs = model.logits(model(window[:, :-1]).hidden)[0].log_softmax(-1)
        for place in range(SEGMENT):
            target = int(window[0, place + 1])
            if target != END:
                total, n = total - float(log_probs[place, target]), n + 1
    rows = rows_of(model, tokens_dir)
    found = only(rows, domain="code", part="first", metric="nll")
    assert found["n"] == n and found["value"] == pytest.approx(total / n, rel=1e-5)
    assert (found["segment_len"], found["trained_segment_len"]) == (SEGMENT, SEGMENT)


def test_a_part_without_text_has_no_loss(tmp_path):
    rows = rows_of(system("dense"), write_tokens(tmp_path), seq_len=150, segment_len=149)
    later = [row for row in rows if (row["domain"], row["part"]) == ("code", "later")]
    assert [(row["metric"], row["value"]) for row in later] == [("tokens", 0)]


def test_a_segment_without_a_later_one(tmp_path):
    with pytest.raises(SpecError, match=r"segment_len must be from 1 to 49, .* got 50"):
        rows_of(system("dense"), write_tokens(tmp_path), segment_len=50)
