"""One table: stage name -> revision of its meaning.

Raise a revision when the same spec and inputs would now give other numbers; old results then stay
in the store but are no longer found.
"""

from typing import Literal, get_args

StageName = Literal[
    "corpus",
    "tokenizer",
    "order",
    "calibrate",
    "seed_model",
    "expert",
    "upcycle",
    "mixture",
    "evaluate",
    "build_tasks",
    "tasks",
    "routing",
    "probe",
    "latency",
]

REVISIONS: dict[StageName, int] = {
    "corpus": 2,
    "tokenizer": 1,
    "order": 1,
    "calibrate": 1,
    "seed_model": 1,
    "expert": 1,
    "upcycle": 1,
    "mixture": 1,
    "evaluate": 1,
    "build_tasks": 1,
    "tasks": 1,
    "routing": 1,
    "probe": 1,
    "latency": 1,
}

TEXT: tuple[StageName, ...] = ("corpus", "tokenizer", "order", "build_tasks")
"""The stages that make text ready, before training; precision and device are no matter to them."""

TRAINING: tuple[StageName, ...] = ("seed_model", "expert", "mixture")

KNOWN_BY: dict[StageName, tuple[str, ...]] = {
    "tokenizer": (),
    "order": ("tokenizer",),
    "build_tasks": (),
}
"""The inputs that enter a stage's fingerprint, where those are not all: a corpus is known by its
content, which stands in the spec of what is made of it."""

assert set(REVISIONS) == set(get_args(StageName))
