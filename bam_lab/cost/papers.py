"""The papers' printed parameter counts and FLOPs, and what our arithmetic gives for each.

The numbers themselves, and what is wrong with them, are data (`reports/published/`): here is which
cell is which model, and which count. `plan --scale` sets both side by side.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, assert_never

from bam_lab.cost.params import count
from bam_lab.cost.printed import per_layer
from bam_lab.spec.methods import BAMMethod, BTXMethod, DenseMethod, LoryMethod, MethodSpec
from bam_lab.spec.model import ModelSpec
from bam_lab.spec.routers import RouterSpec, SampleRouter, SoftRouter, TopKRouter

Quantity = Literal["total", "active", "attention_flops", "ffn_flops", "flops"]
Verdict = Literal["equal", "cut off", "differs"]

TABLE_7_CONTEXT = 256
"""n_ctx of arXiv:2408.08274 Table 7."""

_SOFT = SoftRouter(score="softmax", select="all")
_TOP_1 = TopKRouter(score="softmax", select="top_k", top_k=1, renormalize=False)
_TOP_2 = TopKRouter(score="softmax", select="top_k", top_k=2, renormalize=True)
_TOP_3 = TopKRouter(score="softmax", select="top_k", top_k=3, renormalize=False)
_SWITCH = TopKRouter(
    score="softmax", select="top_k", top_k=1, renormalize=False, capacity_factor=1.5
)
_SAMPLE = SampleRouter(
    score="softmax", select="sample", estimator="soft_value", soft_first_layer=False
)
_DENSE = DenseMethod(method="dense")


@dataclass(frozen=True)
class Model:
    """Name one model of a paper: a method over experts."""

    method: MethodSpec
    num_experts: int


@dataclass(frozen=True)
class PrintedCell:
    """Name one printed number by its table, row and column, and what it counts.

    Attributes:
        per_unit: the table's unit: 1, or 1e9 where it prints billions.
    """

    table: str
    row: str
    column: str
    model: Model
    quantity: Quantity
    per_unit: float = 1.0


def cells_of(name: str) -> tuple[PrintedCell, ...]:
    """Return every printed number that a model of `configs/model` reproduces."""
    match name:
        case "bam-590m":
            return _bam_params() + _bam_flops()
        case "lory-0.3b":
            return _lory("small", {"dense": 1, "e8": 8, "e16": 16, "e32": 32})
        case "lory-1.5b":
            return _lory("medium", {"dense": 1, "e8": 8, "e16": 16, "e32": 32})
        case "lory-7b":
            return _lory("large", {"dense": 1, "e4": 4})
        case "btx-7b":
            return _btx_active()
        case _:
            return ()


def counted(cell: PrintedCell, shape: ModelSpec) -> int:
    """Return our count of a printed number; active parameters as the BAM paper counts them."""
    method, experts = cell.model.method, cell.model.num_experts
    match cell.quantity:
        case "total":
            return count(shape, method, experts).total
        case "active":
            return count(shape, method, experts).active_printed
        case "attention_flops":
            return per_layer(shape, method, experts, TABLE_7_CONTEXT).attention
        case "ffn_flops":
            return per_layer(shape, method, experts, TABLE_7_CONTEXT).ffn
        case "flops":
            return per_layer(shape, method, experts, TABLE_7_CONTEXT).total
        case _:
            assert_never(cell.quantity)


def verdict(printed: float, ours: int, per_unit: float = 1.0) -> Verdict:
    """Say whether `ours`, rounded to the printed digits, is the printed number.

    Args:
        printed: as in the table; trailing zeros of millions are no digits.
        ours: the exact count.
        per_unit: what one unit of the table is.
    """
    step = _step(printed)
    ours_in_units = ours / per_unit
    if round(ours_in_units / step) == round(printed / step):
        return "equal"
    return "cut off" if int(ours_in_units / step) == round(printed / step) else "differs"


def _step(printed: float) -> float:
    """Return the worth of the last printed digit."""
    text = f"{printed:f}".rstrip("0").rstrip(".")
    if "." in text:
        return 10.0 ** -len(text.partition(".")[2])
    return 1e6 if printed >= 1e6 and printed % 1e6 == 0 else 1.0


def _btx(experts: int, router: RouterSpec = _TOP_1) -> Model:
    return Model(BTXMethod(method="btx", ffn_router=router), experts)


def _bam(kv: Literal["per_expert", "shared"]) -> Model:
    return Model(BAMMethod(method="bam", kv=kv, ffn_router=_TOP_1, attention_router=_SOFT), 4)


def _bam_params() -> tuple[PrintedCell, ...]:
    exact: Mapping[str, Model] = {
        "dense": Model(_DENSE, 1),
        "kv-experts": _bam("per_expert"),
        "kv-sharing": _bam("shared"),
        "btx-4": _btx(4),
        "btx-6-top-3": _btx(6, _TOP_3),
    }
    table_4 = {"bam": _bam("per_expert")} | {f"btx-{n}": _btx(n) for n in range(4, 9)}
    table_5 = {"bam": _bam("per_expert"), "btx-6-top-3": _btx(6, _TOP_3)}
    tables = {"bam-table-9": exact, "bam-table-4": table_4, "bam-table-5": table_5}
    columns: tuple[Quantity, ...] = ("total", "active")
    return tuple(
        PrintedCell(table, row, column, model, column)
        for table, rows in tables.items()
        for row, model in rows.items()
        for column in columns
    )


def _bam_flops() -> tuple[PrintedCell, ...]:
    rows = {"kv-experts": _bam("per_expert"), "btx": _btx(4), "btx-6-top-3": _btx(6, _TOP_3)}
    columns: dict[str, Quantity] = {
        "total": "total",
        "active": "active",
        "attention": "attention_flops",
        "ffn": "ffn_flops",
        "flops": "flops",
    }
    return tuple(
        PrintedCell("bam-table-7", row, column, model, quantity)
        for row, model in rows.items()
        for column, quantity in columns.items()
    )


def _lory(row: str, columns: Mapping[str, int]) -> tuple[PrintedCell, ...]:
    lory = LoryMethod(method="lory", segment_len=256, first_segment="own_mean")
    return tuple(
        PrintedCell(
            "lory-models",
            row,
            column,
            Model(lory, experts) if experts > 1 else Model(_DENSE, 1),
            "total",
            1e9,
        )
        for column, experts in columns.items()
    )


def _btx_active() -> tuple[PrintedCell, ...]:
    routers: dict[str, RouterSpec] = {
        "switch": _SWITCH,
        "sample": _SAMPLE,
        "top-2": _TOP_2,
        "soft": _SOFT,
    }
    return tuple(
        PrintedCell("btx-table-4", row, "active", _btx(4, router), "active", 1e9)
        for row, router in routers.items()
    )
