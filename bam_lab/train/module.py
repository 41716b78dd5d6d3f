"""The LightningModule under every method: one model, one loss, one optimizer.

The learning rate is set before each step from the step's number alone; `first_step` is how many
steps an earlier, interrupted attempt has done.

Where a batch is spread over ranks or passes, the gradient is the mean over all of it. Router losses
are not: each part's are over its own tokens (products of means over tokens differ from the mean of
products), capacity limits and experts that choose see a part alone, and noise is each part's own.
"""

from typing import Any

import lightning
import torch
from torch import Tensor

from bam_lab.data.tokens.datamodule import Spread
from bam_lab.model.balance import move_biases, move_l1_weight, sparsity
from bam_lab.model.context import Draw
from bam_lab.model.facts import routing_facts
from bam_lab.model.losses import next_token_loss
from bam_lab.model.router_losses import router_losses, weigh
from bam_lab.model.transformer import Transformer
from bam_lab.train.optim import Training, adamw


class TrainedModule(lightning.LightningModule):
    """Train a `Transformer`, dense or a mixture, on batches of tokens [B, T+1].

    Attributes:
        grad_norm: norm of the last step's gradient, before clipping.
    """

    def __init__(self, model: Transformer, training: Training):
        """Hold what to train and how."""
        super().__init__()
        self.model, self.training_settings = model, training
        self.first_step = 0
        self.spread = Spread()
        self.grad_norm = 0.0

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits [B, T, V] after each of `tokens` [B, T]."""
        return self.model.logits(self.model(tokens).hidden)

    def training_step(self, batch: Tensor, batch_idx: int) -> dict[str, Any]:
        """Return the whole loss, and apart its parts and what the routers did.

        Among these, `loss` is the nats a token alone.
        """
        output = self.model(batch[:, :-1], self._draw(batch_idx))
        move_biases(self.model, output)  # for the next step: this one's choices are made
        nll = next_token_loss(output.hidden, self.model.lm_head_weight, batch[:, 1:])
        extra = router_losses(output, self.model.method)
        parts = {"loss": nll} | extra | routing_facts(output)
        weighted = weigh(extra, self.model.method, self.model.l1_weight)
        if self.model.l1_weight is not None:
            parts |= {"l1_weight": self.model.l1_weight.clone(), "sparsity_ffn": sparsity(output)}
            move_l1_weight(self.model, output)
        return {
            "loss": nll + weighted,
            "metrics": {name: part.detach() for name, part in parts.items()},
        }

    def _draw(self, batch_idx: int) -> Draw:
        """Return the noise: a function of step and part alone, so that resuming is exact."""
        step = self.first_step + self.global_step
        seed = self.training_settings.noise_seed + step + (self.spread.part(batch_idx) << 32)
        return Draw(step, torch.Generator(self.device).manual_seed(seed))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return a fresh AdamW."""
        return adamw(self.model, self.training_settings)

    def on_train_batch_start(self, batch: Tensor, batch_idx: int) -> None:
        """Set the learning rate of this step."""
        lr = self.training_settings.lr(self.first_step + self.global_step)
        for group in self.trainer.optimizers[0].param_groups:
            group["lr"] = lr

    def configure_gradient_clipping(
        self,
        optimizer: Any,
        gradient_clip_val: Any = None,
        gradient_clip_algorithm: Any = None,
    ) -> None:
        """Clip the gradient's norm and keep it for the record."""
        limit = self.training_settings.grad_clip
        self.grad_norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit))
