"""What a trained model's loss teaches learned positions, of the first segment and of later ones.

A reviewer of Lory doubted that positions of a first segment, which is routed by its own mean
without gradient to that decision (arXiv:2405.03133 App. A), get gradients. The receipt of
upcycling says whether they do at step 0; this measures how large they are after training.
"""

from collections.abc import Sequence
from pathlib import Path

import torch

from bam_lab.data.tokens.heldout import windows
from bam_lab.errors import SpecError
from bam_lab.evaluate.probes.rows import Row, row
from bam_lab.evaluate.probes.segment_lens import segment_len_of
from bam_lab.model.context import Draw
from bam_lab.model.ensemble import Ensemble
from bam_lab.model.losses import next_token_loss
from bam_lab.model.transformer import Transformer


def position_rows(
    model: Transformer | Ensemble,
    tokens_dir: Path,
    domains: Sequence[str],
    split: str,
    seq_len: int,
    most: int,
    segment_len: int,
    step: int = 0,
) -> list[Row]:
    """Return the mean norm of one position's gradient, of the first segment and of later ones.

    The gradient is that of the next-token loss alone, by the rule of training, in float32. A row
    of all domains is that of their mean loss.

    Args:
        model: with learned positions; no gradient is left in it.
        tokens_dir: the encoded corpus.
        domains: whose held-out text is read.
        split: `valid` or `test`.
        seq_len: tokens of a window, shorter ones filled up.
        most: windows of each domain, at most.
        segment_len: cuts the positions, in every arm alike.
        step: whose noise a router that draws has.

    Raises:
        SpecError: the model learns no positions, or windows have no later segment.
    """
    problems = [] if (reason := no_positions(model)) is None else [reason]
    if not 1 <= segment_len < seq_len:
        problems.append(
            f"segment_len must be from 1 to {seq_len - 1}, to leave a later segment, got "
            f"{segment_len}. Take a shorter one."
        )
    if problems:
        raise SpecError(problems)
    assert isinstance(model, Transformer)
    gradients = []
    for domain in domains:
        held = windows(tokens_dir, domain, split, seq_len, most * seq_len)
        rows = torch.from_numpy(held.tokens[:most]).to(model.position.device)
        draw = Draw(step, torch.Generator(rows.device).manual_seed(0))
        loss = next_token_loss(model(rows[:, :-1], draw).hidden, model.lm_head_weight, rows[:, 1:])
        gradients.append((domain, len(rows), torch.autograd.grad(loss, model.position)[0]))
    mean = torch.stack([gradient for _, _, gradient in gradients]).mean(0)
    found: list[Row] = []
    for domain, n, gradient in (*gradients, ("*", sum(n for _, n, _ in gradients), mean)):
        norms = gradient[:seq_len].norm(dim=1)
        for part, own in (("first", norms[:segment_len]), ("later", norms[segment_len:])):
            common = {
                "domain": domain,
                "context": seq_len,
                "segment_len": segment_len,
                "trained_segment_len": segment_len_of(model),
                "part": part,
            }
            value = float(own.mean())
            found.append(row("positions", "gradient_norm", value, n, unit="", **common))
    return found


def no_positions(model: Transformer | Ensemble) -> str | None:
    """Return why a model has no learned positions to measure; None if it has."""
    if isinstance(model, Transformer) and model.spec.positions == "learned":
        return None
    return (
        f"positions must be learned to have a gradient, got {model.spec.positions} "
        f"({model.method.method}). Leave this model out."
    )
