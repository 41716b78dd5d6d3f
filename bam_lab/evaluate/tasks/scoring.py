"""What lm-evaluation-harness lacks: bits per byte of an answer, and tests run in the sandbox.

Both are `process_results` of a task: (document, results) -> metric -> value.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bam_lab.evaluate.sandbox import Limits, Outcome, run

PASSED = "pass@1"


def bits_per_byte(document: Mapping[str, Any], results: Sequence[Any]) -> dict[str, Any]:
    """Return the log-likelihood of an answer with its bytes of UTF-8, which lm-eval adds up.

    Bits per byte = -sum of log-likelihoods / (ln 2 * sum of bytes), over all documents.
    """
    loglikelihood = results[0][0]
    return {"bits_per_byte": (loglikelihood, len(document["target"].encode("utf-8")))}


@dataclass(frozen=True)
class Execution:
    """Run completions against their documents' tests. Having one is the permission to run them.

    Attributes:
        allow_unsafe: whether they may run where this machine cannot shut them in.
        outcomes: document id -> what became of it.
    """

    limits: Limits = field(default_factory=Limits)
    allow_unsafe: bool = False
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def __call__(self, document: Mapping[str, Any], results: Sequence[Any]) -> dict[str, float]:
        """Return 1 where the completed program passes its test.

        Raises:
            InputError: the machine cannot shut it in, and that is not allowed.
        """
        completion = results[0] if isinstance(results[0], str) else results[0][0]
        program = f"{document['prompt']}{completion}\n{document['test']}"
        outcome = run(program, self.limits, allow_unsafe=self.allow_unsafe)
        self.outcomes[document["id"]] = outcome
        return {PASSED: float(outcome.passed)}

    def __deepcopy__(self, memo: object) -> "Execution":
        """Return itself: lm-eval copies configurations, and the outcomes are wanted here."""
        return self
