"""Rows of kind `probe`: one table for all probes, with the same columns in every row.

A column that says nothing of a probe is None; `*` is all: domains (each weighing the same), or
routers (their mean).

- task: the probe; metric: what was measured of it.
- domain, prompt_domain: of what is scored, and of the text before it where that is another.
- context: tokens of a row, what is scored included.
- rule: how methods that route segments decided; for others both rules are one, and rows of both
  stand there with equal values, so that arms can be compared under either.
- segment_len: by which a method that routes segments was evaluated; trained_segment_len: its own.
- prompt_len, completion_len; distance, bin_len: how far behind the prompt a bin of the completion
  begins, and its tokens. None in distance is all of it.
- length, depth, distractors: a needle's prompt in tokens, where in it the needle stands (0 at its
  start, 1 at its end), and how many others stand there; None in length or depth is all of them.
- part: `first` or `later` segments of rows. layer, router: of expert weights.
- n: completions, prompts, or tokens where `unit` says nats/token and nothing is completed.
- chance: what guessing gives, for accuracies.
"""

import math
from collections.abc import Iterator
from typing import Any

Row = dict[str, Any]

COLUMNS = (
    "kind",
    "task",
    "domain",
    "prompt_domain",
    "metric",
    "context",
    "rule",
    "trained_segment_len",
    "segment_len",
    "prompt_len",
    "completion_len",
    "distance",
    "bin_len",
    "length",
    "depth",
    "distractors",
    "part",
    "layer",
    "router",
    "n",
    "value",
    "unit",
    "chance",
)

NATS = "nats/token"


def row(task: str, metric: str, value: float, n: int, **parameters: Any) -> Row:
    """Return a row; what is not given is None."""
    given = {"kind": "probe", "task": task, "metric": metric, "value": value, "n": n} | parameters
    unknown = given.keys() - set(COLUMNS)
    assert not unknown, f"no such columns: {unknown}"
    return {column: given.get(column) for column in COLUMNS}


def loss_rows(task: str, nats: float, n: int, **parameters: Any) -> Iterator[Row]:
    """Yield a loss as nats per token and as perplexity, exp of it."""
    yield row(task, "nll", nats, n, unit=NATS, **parameters)
    yield row(task, "perplexity", math.exp(nats), n, unit="", **parameters)
