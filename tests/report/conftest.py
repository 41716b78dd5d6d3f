"""Fake stores, made once."""

import pytest

from bam_lab.report.collect import collect
from tests.report.fake_store import ARMS, Fake, make_store

EFFECTS = {
    "soft": -0.02,
    "top-2": {"general": -0.001, "code": 0.0, "law": 0.01, "math": -0.003},
    "top-1": 0.012,
}


@pytest.fixture(scope="session")
def evidence_of(tmp_path_factory):
    """Return a function from a `Fake` to the evidence that a store of it gives; each made once."""
    made = {}

    def make(**settings):
        fake = Fake(**{"effects": EFFECTS, "sd": 0.001, **settings})
        if repr(fake) not in made:
            root = tmp_path_factory.mktemp("evidence")
            made[repr(fake)] = collect(root, make_store(root, fake))
        return made[repr(fake)]

    return make


@pytest.fixture(scope="session")
def five(tmp_path_factory):
    """Five replicates, an unmatched arm, a failed run."""
    root = tmp_path_factory.mktemp("five")
    renormalized = {"select": "top_k", "top_k": 2, "renormalize": True}
    arms = {**ARMS, "extra": {"method": "bam", "kv": "shared", "attention_router": renormalized}}
    fake = Fake(
        replicates=5,
        arms=arms,
        effects={**EFFECTS, "extra": -0.1},
        sd=0.001,
        unmatched=("extra",),
        failed=(("top-1", 4),),
    )
    return root, make_store(root, fake)
