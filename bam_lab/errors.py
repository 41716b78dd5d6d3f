"""The errors that a person reads, and what the exit codes mean.

Anything else that escapes is a defect of ours and keeps its traceback.
"""

EXIT_DONE = 0
EXIT_STAGE_FAILED = 1
EXIT_BAD_INPUT = 2


class BamLabError(Exception):
    """Stop with a message for the user instead of a traceback."""

    exit_code = EXIT_STAGE_FAILED


class SpecError(BamLabError):
    """Report every problem found in what the user wrote, at once.

    Args:
        problems: one line each, `file:line:col: dotted.path must CONDITION, got VALUE. What to do.`
    """

    exit_code = EXIT_BAD_INPUT

    def __init__(self, problems: list[str] | str):
        """Hold the problems; one may come alone."""
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(self.problems))


class InputError(BamLabError):
    """Report something outside the spec that the user can mend: a path, a disk, a missing extra."""

    exit_code = EXIT_BAD_INPUT


class CheckpointError(InputError):
    """Report weights that cannot be used: damaged, of another shape, or no weights at all."""


class StageError(BamLabError):
    """Report that a stage could not finish; the other arms go on."""


class Diverged(StageError):
    """Stop a training stage whose loss or gradient is NaN or infinite.

    Args:
        step: the step at which it was seen; the first is 1.
        lr: the learning rate of that step.
        last_checkpoint: the step that the last good checkpoint reaches; None when there is none.
    """

    def __init__(self, step: int, lr: float, last_checkpoint: int | None):
        """Say where it happened and what to do."""
        self.step, self.lr, self.last_checkpoint = step, lr, last_checkpoint
        kept = "none yet" if last_checkpoint is None else f"step {last_checkpoint}"
        super().__init__(
            f"the loss and its gradient must be finite, got NaN or infinity at step {step} "
            f"(learning rate {lr:.3g}; last good checkpoint: {kept}). "
            "Lower peak_lr or raise warmup_steps of this phase in the scale."
        )
