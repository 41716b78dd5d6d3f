"""Identity: the same meaning, the same hash; no hash for what has no canonical form."""

from pathlib import Path
from typing import Literal

import pytest

from bam_lab.record.fingerprint import canonical, fingerprint
from bam_lab.spec.base import Spec
from bam_lab.spec.methods import BTXMethod
from bam_lab.spec.routers import TopKRouter


class Old(Spec):
    kind: Literal["a"]
    size: float


class New(Spec):
    kind: Literal["a"]
    size: float
    added: int = 3


def test_new_field_with_a_default_leaves_the_hash_alone() -> None:
    assert fingerprint(Old(kind="a", size=1)) == fingerprint(New(kind="a", size=1.0))
    assert fingerprint(New(kind="a", size=1)) == fingerprint(New(kind="a", size=1, added=3))
    assert fingerprint(New(kind="a", size=1)) != fingerprint(New(kind="a", size=1, added=4))


def test_default_spelt_out_is_the_same_method_and_none_is_another() -> None:
    router = TopKRouter(score="softmax", select="top_k", top_k=1, renormalize=False)
    plain = BTXMethod(method="btx", ffn_router=router)
    assert fingerprint(plain) == fingerprint(plain.model_copy(update={"z_loss": 0.0}))
    assert fingerprint(plain) != fingerprint(plain.model_copy(update={"balance_loss": None}))


def test_order_of_keys_means_nothing_and_order_of_lists_does() -> None:
    assert canonical({"b": 1, "a": [1, 2]}) == '{"a":[1,2],"b":1}'
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    assert fingerprint([1, 2]) != fingerprint([2, 1])
    assert fingerprint(True) != fingerprint(1) != fingerprint(1.0)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"f": print}, r"value\.f must be a spec.*got builtin.*the same name can hold other code"),
        ({"f": [object()]}, r"value\.f\[0\] must be .*got object: its text may differ"),
        ({"p": Path("x")}, r"value\.p must be .*Path"),
        ({1, 2}, "use a sorted list"),
        ({"x": float("nan")}, r"value\.x must be finite .*nan"),
        ({1: 2}, "must have strings as keys, got 1"),
    ],
)
def test_refuses_what_has_no_canonical_form(value: object, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        fingerprint(value)
