"""The learning rate as a pure function of the step, so that resuming needs no scheduler state.

Under the cosine a rate depends on how long the whole phase is; before its decay, under the other
schedule, it does not: so phases of several lengths share one stable run.
"""

import math


def learning_rate(
    step: int, *, steps: int, peak: float, warmup_steps: int, final_share: float
) -> float:
    """Return the rate of step `step` (the first is 0) of `steps`.

    Linear from 0 to `peak` over `warmup_steps` (the first step already moves), then a cosine to
    `final_share * peak` at the last step (arXiv:2408.08274 §5).
    """
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    done = (step - warmup_steps) / max(steps - 1 - warmup_steps, 1)
    return peak * (final_share + (1 - final_share) * (1 + math.cos(math.pi * min(done, 1.0))) / 2)


def stable_then_decay(
    step: int,
    *,
    steps: int,
    peak: float,
    warmup_steps: int,
    final_share: float,
    decay_steps: int,
) -> float:
    """Return the rate of step `step` (the first is 0) of `steps`, of which the last ones decay.

    Linear from 0 to `peak` as under the cosine, `peak` until `decay_steps` steps are left, then
    `final_share + (1 - final_share) * (1 - sqrt(x))` of it, x from 0 to 1 at the last step
    (arXiv:2405.18392 §3; warm-up, stable, decay: arXiv:2404.06395 §4).
    """
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    decayed = step + 1 - (steps - decay_steps)
    if decayed <= 0 or decay_steps == 0:
        return peak
    left = 1 - math.sqrt(min(decayed / decay_steps, 1.0))
    return peak * (final_share + (1 - final_share) * left)
