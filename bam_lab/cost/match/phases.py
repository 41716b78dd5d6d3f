"""What one training stage spends: the seed model, a branch, one part of a mixture phase."""

from collections.abc import Iterable
from dataclasses import dataclass

from bam_lab.cost import communication
from bam_lab.cost.flops import FlopCount, per_token
from bam_lab.cost.lora import lora_params, lora_per_token
from bam_lab.cost.match.lineage import num_experts
from bam_lab.cost.params import ParamCount, count
from bam_lab.spec.branches import BranchSpec
from bam_lab.spec.experts import starts_anew
from bam_lab.spec.methods import DenseMethod, MethodSpec
from bam_lab.spec.model import ModelSpec
from bam_lab.spec.resolved import ResolvedAblation
from bam_lab.spec.scale import PhaseSize

DENSE = DenseMethod(method="dense")


@dataclass(frozen=True)
class PhaseBudget:
    """Hold what one training stage spends.

    Attributes:
        bytes_communicated: what `communication.DEVICES` devices would send, by arithmetic.
    """

    steps: int
    tokens: int
    params: ParamCount
    flops: FlopCount
    training_flops: int
    executed_flops: int
    bytes_communicated: int


def seed_budget(resolved: ResolvedAblation) -> PhaseBudget:
    """Return what the seed model's training spends."""
    size = resolved.scale.phases.seed_model
    return _budget(resolved.model, DENSE, 1, size.batch_sequences, steps_of(size, resolved.model))


def expert_budget(resolved: ResolvedAblation, how: BranchSpec | None = None) -> PhaseBudget:
    """Return what one branch's training spends, in full where `how` is None."""
    size = resolved.scale.phases.expert
    full = _budget(resolved.model, DENSE, 1, size.batch_sequences, steps_of(size, resolved.model))
    if how is None:
        return full
    tokens_a_step = full.tokens // full.steps
    flops = lora_per_token(resolved.model, how.lora, resolved.model.max_seq_len, tokens_a_step)
    steps = full.steps
    if how.equal == "flops":
        steps = round(full.training_flops / (tokens_a_step * flops.model_training))
    adapters = lora_params(resolved.model, how.lora)
    sent = communication.gradients_per_step(adapters, communication.DEVICES)
    return _spent(full.params, flops, steps, tokens_a_step, sent)


def phase_of(resolved: ResolvedAblation, method: MethodSpec) -> PhaseSize:
    """Return the size of an arm's mixture phase.

    A model that starts anew takes the seed model's learning rates, on the batches of all arms.
    """
    phases = resolved.scale.phases
    if not starts_anew(method):
        return phases.mixture
    names = ("peak_lr", "warmup_steps", "final_lr_share")
    return phases.mixture.model_copy(
        update={name: getattr(phases.seed_model, name) for name in names}
    )


def mixture(
    resolved: ResolvedAblation, method: MethodSpec, part: MethodSpec, steps: int, batch: int
) -> PhaseBudget:
    """Return what `steps` steps of `batch` sequences of one part of a mixture phase spend."""
    return _budget(resolved.model, part, num_experts(resolved, method), batch, steps)


def training_flops(parts: Iterable[PhaseBudget]) -> int:
    """Return the model training FLOPs of all parts together."""
    return sum(part.training_flops for part in parts)


def steps_of(size: PhaseSize, model: ModelSpec) -> int:
    """Return the optimizer steps of a phase: those nearest to its tokens, at least one."""
    return max(round(size.tokens / (size.batch_sequences * model.max_seq_len)), 1)


def _budget(
    model: ModelSpec, method: MethodSpec, experts: int, batch: int, steps: int
) -> PhaseBudget:
    flops = per_token(model, method, experts, model.max_seq_len)
    sent = communication.per_step(model, method, experts, batch, communication.DEVICES)
    tokens_a_step = batch * model.max_seq_len
    return _spent(count(model, method, experts), flops, steps, tokens_a_step, sent.total)


def _spent(
    params: ParamCount, flops: FlopCount, steps: int, tokens_a_step: int, sent_a_step: int
) -> PhaseBudget:
    tokens = steps * tokens_a_step
    return PhaseBudget(
        steps=steps,
        tokens=tokens,
        params=params,
        flops=flops,
        training_flops=tokens * flops.model_training,
        executed_flops=tokens * flops.executed_training,
        bytes_communicated=steps * sent_a_step,
    )
