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
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(self.problems))


class InputError(BamLabError):
    """Report something outside the spec that the user can mend: a path, a disk, a missing extra."""

    exit_code = EXIT_BAD_INPUT


class StageError(BamLabError):
    """Report that a stage could not finish; the other arms go on."""
