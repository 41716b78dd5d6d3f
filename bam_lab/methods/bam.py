"""BAM: attention experts beside FFN experts, in parallel blocks (arXiv:2408.08274)."""

from collections.abc import Sequence
from typing import Any, Literal, Self

from bam_lab.methods.dense import Dense
from bam_lab.methods.mixing import mix
from bam_lab.spec.messages import checked
from bam_lab.spec.methods import BAMMethod
from bam_lab.spec.routers import (
    AttentionRouterSpec,
    BalanceLoss,
    RouterSpec,
    SoftRouter,
    TopKRouter,
)
from bam_lab.train.module import TrainedModule
from bam_lab.train.optim import DEFAULTS, Training

SOFT = SoftRouter(score="softmax", select="all")
TOP_1 = TopKRouter(score="softmax", select="top_k", top_k=1, renormalize=False)
BALANCE = BalanceLoss(form="tokens", weight=0.01)


class BAM(TrainedModule):
    """Train a Branch-Attend-Mix mixture; the defaults are the paper's (§4)."""

    @classmethod
    def from_experts(
        cls,
        experts: Sequence[Dense],
        *,
        kv: Literal["per_expert", "shared"],
        attention_router: AttentionRouterSpec = SOFT,
        ffn_router: RouterSpec = TOP_1,
        balance_loss: BalanceLoss | None = BALANCE,
        attention_balance_loss: BalanceLoss | None = None,
        z_loss: float = 0.001,
        frozen_experts: bool = False,
        allow_unrelated: bool = False,
        rng_seed: int = 0,
        training: Training = DEFAULTS,
    ) -> Self:
        """Mix dense experts, keys and values `per_expert` or `shared`; `rng_seed` draws routers."""
        method = checked(
            BAMMethod,
            method="bam",
            kv=kv,
            attention_router=attention_router,
            ffn_router=ffn_router,
            balance_loss=balance_loss,
            attention_balance_loss=attention_balance_loss,
            z_loss=z_loss,
            frozen_experts=frozen_experts,
        )
        mixture = mix(method, experts, rng_seed, allow_unrelated=allow_unrelated)
        return cls(mixture, training)

    @classmethod
    def from_seed(cls, seed_model: Dense, num_experts: int, **settings: Any) -> Self:
        """Mix copies of one model; `settings` as in `from_experts`."""
        return cls.from_experts([seed_model] * num_experts, **settings)
