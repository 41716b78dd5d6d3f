"""A wrong value at any place of any file is a message, never a traceback."""

import copy
import json
from pathlib import Path

import pytest

from bam_lab.cli.kinds import problems_of
from bam_lab.errors import SpecError
from bam_lab.spec.load import load_ablation
from bam_lab.spec.reader import load

WRONG = (None, "x", [1], {"a": 1}, -1, 2**62, 1e308, "9x")
FILES = {
    "ablation": "ablations/bam/bam-attention-routing.yaml",
    "recipe": "configs/recipe/bam.yaml",
    "scale": "configs/scale/nano.yaml",
    "model": "configs/model/nano.yaml",
    "corpus": "tests/fixtures/corpus.yaml",
}


def places(data, path=()):
    """Yield the path of every value below `data`."""
    items = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def changed(data, path, value):
    made = copy.deepcopy(data)
    place = made
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return made


@pytest.fixture
def folder(tmp_path):
    """Write an ablation beside all files that it names, as JSON, which is YAML."""
    data = {kind: load(Path(path)).data for kind, path in FILES.items()}
    for arm in ("top-1", "top-2", "top-2-renormalized"):  # the same keys as `soft`
        del data["ablation"]["arms"][arm]
    data["ablation"] |= {"recipe": "recipe.yaml", "scale": "scale.yaml"}
    data["scale"] |= {"model": "model.yaml", "corpus": "corpus.yaml"}
    for kind, content in data.items():
        (tmp_path / f"{kind}.yaml").write_text(json.dumps(content))
    return tmp_path


@pytest.mark.parametrize("kind", FILES)
def test_wrong_values(kind, folder):
    path = folder / f"{kind}.yaml"
    good = load(path).data
    for place in places(good):
        for value in WRONG:
            path.write_text(json.dumps(changed(good, place, value)))
            for problem in problems_of(path):
                assert isinstance(problem, str) and problem


@pytest.mark.parametrize("key", ["arms", "common", "match", "report", "replicates"])
@pytest.mark.parametrize("value", [[1], "x", 3])
def test_a_list_where_a_mapping_belongs(key, value, folder):
    path = folder / "ablation.yaml"
    path.write_text(json.dumps(load(path).data | {key: value}))
    with pytest.raises(SpecError, match=rf"{key} must be a mapping"):
        load_ablation(str(path))
