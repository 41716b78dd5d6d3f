"""The learning rate as a pure function of the step, so that resuming needs no scheduler state."""

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
