"""Names of branches: equal ones are one, different ones are told apart."""

from collections.abc import Mapping
from typing import Any

import pytest

from bam_lab.spec.branches import Branch, BranchSpec, home_of, own_data
from bam_lab.spec.data import DataSpec, Similar
from bam_lab.spec.load import load_ablation
from bam_lab.spec.recipe import RecipeSpec

RECIPE = load_ablation("tests/fixtures/ablation.yaml").recipe
REPEATING = RECIPE.model_copy(update={"general_repeats": 4})


@pytest.mark.parametrize(
    ("recipe", "name", "asked", "own"),
    [
        (RECIPE, "code", {"general_share": 0.2}, {"general_share": 0.2}),
        (RECIPE, "code", {"general_share": 0.1}, {}),  # the recipe's
        (RECIPE, "code", {"mix": {"code": 1.0}, "order": "random"}, {}),
        (RECIPE, "general", {"general_share": 0.2}, {}),  # it is all general
        (RECIPE, "general", {"general_share": 0.2, "general_repeats": 2}, {"general_repeats": 2}),
        (RECIPE, "code", {"general_share": 0.0, "general_repeats": 2}, {"general_share": 0.0}),
        (REPEATING, "code", {"general_share": 0.0}, {"general_share": 0.0}),
        (REPEATING, "code", {"general_repeats": 4}, {}),
        (RECIPE, "math.1of2", {"order": "similar"}, {"order": Similar()}),
    ],
)  # fmt: skip
def test_a_branch_keeps_what_differs_and_has_an_effect(
    recipe: RecipeSpec, name: str, asked: Mapping[str, Any], own: Mapping[str, Any]
) -> None:
    assert own_data(recipe, "general", name, DataSpec(**asked)) == DataSpec(**own)


LORA = BranchSpec.model_validate({"lora": {"rank": 2, "alpha": 4.0, "targets": ("ffn",)}})


@pytest.mark.parametrize(
    ("how", "data", "label"),
    [
        (None, {}, "code"),
        (LORA, {}, "code+lora-r2-a4-ffn"),
        (None, {"general_share": 0.05}, "code with 5% general"),
        (None, {"general_share": 0.05, "general_repeats": 8}, "code with 5% general read 8 times"),
        (None, {"general_repeats": 1}, "code with general text read once"),
        (None, {"order": "random"}, "code in random order"),
        (None, {"order": "similar"}, "code in similar order"),
        (None, {"order": {"neighbours": 5}}, "code in similar order (neighbours 5)"),
        (LORA, {"general_share": 0.0}, "code+lora-r2-a4-ffn with 0% general"),
    ],
)  # fmt: skip
def test_labels_say_what_differs(how: BranchSpec | None, data: dict[str, Any], label: str) -> None:
    branch = Branch("code", how, DataSpec(**data))
    assert branch.label == label
    assert home_of(label) == "code"
    assert branch == Branch("code", how, DataSpec(**data)) and len({branch, branch}) == 1


def test_the_home_of_a_part_is_its_domain() -> None:
    assert home_of("math.1of2") == home_of("math.2of2+lora-r2-a4-ffn in similar order") == "math"
