"""Parameter counts against every number that the papers print or imply."""

import pytest

from bam_lab.cost.params import count
from tests.cost.shapes import (
    BTX,
    DENSE,
    KV_EXPERTS,
    KV_SHARING,
    LARGE,
    SMALL,
    TOP_2,
    TOP_3,
    shape,
)


@pytest.mark.parametrize(
    ("method", "experts", "total"),
    [
        (DENSE, 1, 587_209_728),
        (BTX, 4, 700_480_512),
        (KV_SHARING, 4, 738_253_824),
        (KV_EXPERTS, 4, 776_002_560),
        (BTX, 6, 775_990_272),
    ],
)
def test_total_is_the_papers(method, experts, total):
    assert count(SMALL, method, experts).total == total


@pytest.mark.parametrize(("experts", "millions"), [(5, 738.2), (6, 776.0), (7, 813.7), (8, 851.5)])
def test_btx_with_more_experts(experts, millions):
    assert count(SMALL, BTX, experts).total / 1e6 == pytest.approx(millions, abs=0.05)


@pytest.mark.parametrize(
    ("method", "experts", "printed", "both_routers"),
    [
        (DENSE, 1, 587_209_728, 587_209_728),
        (BTX, 4, 587_234_304, 587_234_304),
        (KV_EXPERTS, 4, 662_731_776, 662_756_352),
        (KV_SHARING, 4, 624_983_040, 625_007_616),
    ],
)
def test_active(method, experts, printed, both_routers):
    counted = count(SMALL, method, experts)
    assert counted.active_printed == printed
    assert counted.active == both_routers


def test_btx_top_3_of_6_prints_662_731_776_with_the_router_of_4_experts():
    """The paper's row carries a router of 4096 (4 experts); with 6 it is 12,288 more."""
    counted = count(SMALL, BTX.model_copy(update={"ffn_router": TOP_3}), 6)
    assert counted.active_printed == 662_731_776 + 6 * 2 * 1024


@pytest.mark.parametrize(
    ("method", "experts", "total", "active"),
    [(DENSE, 1, 1.991, 1.991), (BTX, 4, 5.431, None), (KV_EXPERTS, 4, 6.196, 2.756)],
)
def test_large_scale(method, experts, total, active):
    counted = count(LARGE, method, experts)
    assert counted.total / 1e9 == pytest.approx(total, abs=0.0006)
    if active is not None:
        assert counted.active_printed / 1e9 == pytest.approx(active, abs=0.0006)


def test_top_k_attention_uses_fewer_queries_but_every_key():
    top_2 = KV_EXPERTS.model_copy(update={"attention_router": TOP_2})
    saved = count(SMALL, KV_EXPERTS, 4).active - count(SMALL, top_2, 4).active
    assert saved == 6 * 2 * (2 * 1024 * 1024)
    assert count(SMALL, KV_EXPERTS, 4).total == count(SMALL, top_2, 4).total


def test_tied_head_and_serial_block():
    assert count(shape(tie_embeddings=True), DENSE, 1).total == 587_209_728 - 256000 * 1024
    assert count(shape(block="serial"), DENSE, 1).total == 587_209_728 + 6 * 1024
