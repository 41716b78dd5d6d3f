"""AdamW and the settings of one training phase.

Weight decay acts on matrices (embeddings, LM head and routers among them), not on the norms'
vectors. The papers say 0.1 and not on what (assumption register); stacked experts stay matrices.
"""

from dataclasses import dataclass

import torch
from torch import nn

from bam_lab.train.schedule import learning_rate, stable_then_decay


@dataclass(frozen=True)
class Training:
    """Set one phase: how many steps, at which learning rates, with which AdamW.

    Attributes:
        steps: optimizer steps of the whole phase; the schedule ends at the last.
        grad_clip: largest norm of the gradient over all parameters.
        noise_seed: of the noise that a router may draw; step i takes `noise_seed + i`.
        decay_steps: how many of the last steps decay after a stable run; None for a cosine.
    """

    steps: int = 1000
    peak_lr: float = 1e-3
    warmup_steps: int = 100
    final_lr_share: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.95
    weight_decay: float = 0.1
    grad_clip: float = 1.0
    noise_seed: int = 0
    decay_steps: int | None = None

    def lr(self, step: int) -> float:
        """Return the learning rate of one step."""
        if self.decay_steps is None:
            return learning_rate(
                step,
                steps=self.steps,
                peak=self.peak_lr,
                warmup_steps=self.warmup_steps,
                final_share=self.final_lr_share,
            )
        return stable_then_decay(
            step,
            steps=self.steps,
            peak=self.peak_lr,
            warmup_steps=self.warmup_steps,
            final_share=self.final_lr_share,
            decay_steps=self.decay_steps,
        )


DEFAULTS = Training()


def adamw(model: nn.Module, training: Training) -> torch.optim.AdamW:
    """Return a fresh AdamW over `model`'s trainable parameters; `lr` is set before each step."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": training.weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    betas = (training.beta1, training.beta2)
    return torch.optim.AdamW(groups, lr=training.peak_lr, betas=betas, fused=True)
