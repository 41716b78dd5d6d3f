"""Task files: what is code, where data lies, and what is damaged."""

import json
from copy import deepcopy

import pytest

from bam_lab.errors import InputError
from bam_lab.evaluate.harness_files import (
    Memory,
    code_in_config,
    code_in_file,
    in_memory,
    problem_of,
    with_data,
    yaml_files,
)

PLAIN = "task: plain\ndoc_to_text: '{{question}}'\nunsafe_code: false\n"


@pytest.fixture
def written(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (PLAIN, []),
        ("task: x\nprocess_docs: !function utils.f\n", ["x.yaml:2: !function utils.f"]),
        ("task: x\nmetric_list:\n  - metric: !function a.b\n", ["x.yaml:3: !function a.b"]),
        ("task: x\nclass: y\n", ["x.yaml:2: class"]),
        ("task: x\nunsafe_code: true\n", ["x.yaml:2: unsafe_code"]),
        ("a: !!python/object/apply:os.system [x]\n", ["x.yaml:1: tag:yaml.org,2002:python"]),
        ("task: x\nmetric_list:\n- {metric: m, hf_evaluate: true}\n", ["x.yaml:3: hf_evaluate"]),
    ],
)
def test_code_is_found_without_running_it(written, text, found):
    told = code_in_file(written("x.yaml", text))
    assert len(told) == len(found)
    assert all(one.startswith(start) for one, start in zip(told, found, strict=True))


def test_what_a_file_includes_counts(written):
    written("base/_base.yaml", "doc_to_text: !function u.f\ninclude: ../other.yaml\n")
    written("other.yaml", "class: z\ninclude: x.yaml\n")  # a circle ends
    path = written("x.yaml", "task: x\ninclude: [base/_base.yaml]\n")
    assert code_in_file(path) == ["_base.yaml:1: !function u.f", "other.yaml:1: class"]


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({"task": "x", "doc_to_text": "q", "unsafe_code": False}, []),
        ({"task": "x", "doc_to_text": len}, ["doc_to_text"]),
        ({"task": "x", "metric_list": [{"metric": "acc", "aggregation": sum}]}, ["aggregation"]),
        ({"group": "g", "task": [{"task": "x", "process_docs": len}]}, ["process_docs"]),
        ({"task": "x", "class": "y"}, ["class"]),
        ({"task": "x", "custom_dataset": Memory({})}, []),
        ({"task": "x", "custom_dataset": len}, ["custom_dataset"]),
        ({"task": "x", "process_results": in_memory}, []),  # a function of ours
    ],
)
def test_code_in_a_configuration(config, found):
    assert code_in_config(config) == found


def test_files_that_are_none(written, tmp_path):
    assert problem_of(written("a.yaml", PLAIN)) is None
    assert "must be a YAML file" in problem_of(written("b.yaml", "a: [1\n"))
    assert "must hold `key: value` lines" in problem_of(written("c.yaml", "- 1\n"))
    assert "must hold `key: value` lines" in problem_of(written("d.yaml", ""))
    written("deep/e.yaml", PLAIN)
    assert [path.name for path in yaml_files([tmp_path])] == [f"{n}.yaml" for n in "abcd"] + [
        "e.yaml"
    ]
    with pytest.raises(InputError, match="nowhere must be a folder of task files"):
        yaml_files([tmp_path / "nowhere"])


def data_config(files, **settings):
    kwargs = {"data_files": files} | settings
    return {"task": "x", "dataset_path": "json", "dataset_kwargs": kwargs, "test_split": "test"}


def test_lines_are_read_from_beside_the_file(written, tmp_path):
    written("rows/a.jsonl", json.dumps({"q": "é", "n": 1}) + "\n\n" + json.dumps({"q": "b"}) + "\n")
    config = data_config({"test": "rows/a.jsonl"})
    kept = deepcopy(config)
    found = with_data(config, tmp_path)
    assert config == kept
    rows = found["custom_dataset"]()["test"]
    assert rows == [{"q": "é", "n": 1}, {"q": "b", "n": None}]
    assert list(rows.features) == ["q", "n"]
    assert "dataset_path" not in found and "dataset_kwargs" not in found
    one = with_data(data_config(str(tmp_path / "rows/a.jsonl")), None)
    assert len(one["custom_dataset"]()["train"]) == 2


def test_tasks_of_a_group_find_theirs(written, tmp_path):
    written("a.jsonl", "{}\n")
    group = {"group": "g", "task": ["other", data_config({"test": "a.jsonl"})]}
    found = with_data(group, tmp_path)
    assert found["task"][0] == "other" and "custom_dataset" in found["task"][1]


def test_other_data_stays_with_datasets_at_its_place(written, tmp_path):
    written("a.csv", "q\nx\n")
    written("a.jsonl", "{}\n")
    config = data_config({"test": "a.csv"}) | {"dataset_path": "csv"}
    place = str(tmp_path / "a.csv")
    assert with_data(config, tmp_path)["dataset_kwargs"]["data_files"] == {"test": [place]}
    more = with_data(data_config({"test": ["a.jsonl"]}, field="data"), tmp_path)
    assert more["dataset_kwargs"]["data_files"] == {"test": [str(tmp_path / "a.jsonl")]}
    hub = {"task": "x", "dataset_path": "some/set"}
    assert with_data(hub, tmp_path) == hub


@pytest.mark.parametrize(
    ("text", "message"),
    [("{}\n{\n", "a.jsonl:2 must be a JSON object"), ("[1]\n", "a.jsonl:1 .* got list")],
)
def test_damaged_lines(written, tmp_path, text, message):
    written("a.jsonl", text)
    with pytest.raises(InputError, match=message):
        with_data(data_config({"test": "a.jsonl"}), tmp_path)


def test_data_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match=r"x: .*b.jsonl must hold the task's documents"):
        with_data(data_config({"test": "b.jsonl"}), tmp_path)
    with pytest.raises(InputError, match=r"x: dataset_kwargs.data_files must be absolute"):
        with_data(data_config({"test": "b.jsonl"}), None)


def test_memory_is_never_copied_or_printed():
    documents = [{"q": "secret"}] * 3
    config = in_memory({"task": "x", "dataset_path": "json", "dataset_name": "n"}, {"t": documents})
    assert config.keys() == {"task", "custom_dataset"}
    assert deepcopy(config)["custom_dataset"] is config["custom_dataset"]
    assert repr(config["custom_dataset"]) == "Memory({'t': 3})"
    assert Memory({"t": []})()["t"].features == {}
