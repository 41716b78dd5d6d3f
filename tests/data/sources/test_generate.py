"""Generated exercises."""

import pytest

from bam_lab.data.sources import generate
from bam_lab.errors import InputError
from bam_lab.spec.sources import GeneratorSource


def source(**changes):
    values = {
        "kind": "generator", "name": "exercises", "package": "reasoning-gym", "version": "0.1.25",
        "datasets": ("gcd",), "items": 5, "items_per_document": 2, "rng_seed": 1,
        "licence": "Apache-2.0", "max_megabytes": 1.0,
    }  # fmt: skip
    return GeneratorSource.model_validate({**values, **changes})


@pytest.mark.parametrize("installed", ["0.1.24", None])
def test_another_version_is_refused(monkeypatch, installed):
    def version(name):
        if installed is None:
            raise generate.importlib.metadata.PackageNotFoundError(name)
        return installed

    monkeypatch.setattr(generate.importlib.metadata, "version", version)
    with pytest.raises(InputError, match=r"needs reasoning-gym 0.1.25, got .*pip install"):
        list(generate.documents(source()))


def test_same_seed_same_text():
    pytest.importorskip("reasoning_gym")
    first = list(generate.documents(source()))
    assert first == list(generate.documents(source()))
    assert first != list(generate.documents(source(rng_seed=2)))
    assert [name for name, _ in first] == ["gcd#0", "gcd#2", "gcd#4"]
    assert first[0][1].count("Question: ") == 2


def test_an_unknown_generator_is_said():
    pytest.importorskip("reasoning_gym")
    with pytest.raises(InputError, match="datasets must name generators of reasoning-gym"):
        list(generate.documents(source(datasets=("gcdd",))))
