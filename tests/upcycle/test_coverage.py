"""Every tensor of a mixture has one origin, and every part of a dense model one use."""

from dataclasses import replace

import pytest

from bam_lab.spec.experts import (
    num_experts_of,
    num_sources,
)
from bam_lab.upcycle.coverage import check_coverage
from bam_lab.upcycle.execute import shapes, target_shapes
from bam_lab.upcycle.origins import (
    Origin,
    Source,
    dense_shapes,
    origins,
)
from tests.model.cases import (
    CASES,
    DENSE,
    EXPERTS,
    METHODS,
    SOFT,
    btx,
    model_of,
    shape,
)


@pytest.mark.parametrize(("name", "block"), [*CASES, ("dense", "parallel"), ("dense", "serial")])
@pytest.mark.parametrize("tied", [False, True])
def test_coverage(name, block, tied):
    """Every tensor of the model has one origin, every tensor of a dense model one use."""
    method = DENSE if name == "dense" else METHODS[name]
    sources = 1 if name == "dense" else num_sources(method, EXPERTS)
    spec = shape(block, tie_embeddings=tied)
    table = origins(method, spec, [str(i) for i in range(sources)])
    target = target_shapes(method, spec, num_experts_of(method, sources))
    assert set(table) == set(target)
    check_coverage(table, target, [dense_shapes(spec)] * sources)
    assert dense_shapes(spec) == shapes(model_of(DENSE, block, tie_embeddings=tied).state_dict())


def test_coverage_finds_parts_used_twice_or_never():
    spec, method = shape(), btx(SOFT, expert_layout="split", chunks=2)
    table = origins(method, spec, ["a", "b"])
    target, dense = target_shapes(method, spec, 4), dense_shapes(spec)
    check_coverage(table, target, [dense, dense])
    first, _, *others = table["layers.0.ffn.gate"].sources
    gate = replace(table["layers.0.ffn.gate"], sources=(first, first, *others))
    whole = replace(table["layers.1.ffn.up"], sources=(Source(0, "layers.1.ffn.up"), *others))
    broken = table | {"layers.0.ffn.gate": gate, "layers.1.ffn.up": whole}
    with pytest.raises(ValueError, match="is used 2 times") as error:
        check_coverage(broken, target, [dense, dense])
    for problem in (
        "layers.0.ffn.gate of expert 0 must be cut into parts used once each",
        "layers.1.ffn.up of expert 0 must have shape (12, 16)",
    ):
        assert problem in str(error.value)


def test_coverage_finds_every_gap():
    spec = shape()
    method = METHODS["btx-top-1"]
    table = origins(method, spec, ["a", "b"])
    target, dense = target_shapes(method, spec, 2), dense_shapes(spec)
    broken = dict(table)
    del broken["final_norm"]
    broken["extra"] = Origin("mean", (Source(0, "embedding"), Source(1, "gone")), (61, 16))
    broken["lm_head"] = Origin("mean", table["lm_head"].sources, (3, 3))
    with pytest.raises(ValueError, match="final_norm has no origin") as error:
        check_coverage(broken, target, [dense, dense])
    for problem in (
        "extra is not in the target",
        r"lm_head must have shape (61, 16), its origin gives (3, 3)",
        "expert 1 has no gone",
        "final_norm of expert 0 goes nowhere",
    ):
        assert problem in str(error.value)
