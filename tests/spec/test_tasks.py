"""Tasks and suites as files: whole, with their chance, and told apart from what is wrong."""

import importlib.util
from pathlib import Path

import pytest

from bam_lab import resources
from bam_lab.errors import SpecError
from bam_lab.spec.published_rules import read_table
from bam_lab.spec.task_files import (
    harness_file,
    known_suites,
    known_tasks,
    read_suite,
    read_task,
)
from bam_lab.spec.tasks import HarnessTask, TaskSpec

OFFLINE = [
    "continuations",
    "default",
    "default-by-reasoning",
    "law-reasoning",
    "law-tort",
    "written",
]
PAPERS = ["bam-downstream", "bam-downstream-lsat", "btx", "law-legalbench", "law-lsat", "lory"]


@pytest.mark.parametrize("name", known_tasks())
def test_every_task_is_whole_and_its_readme_says_the_same(name):
    path = known_tasks()[name]
    task = read_task(name)
    assert task.name == name
    assert path.read_text().startswith("# ")
    readme = path.with_name("README.md").read_text()
    assert readme.startswith(f"# {task.title}\n")
    for key in ("version", "source", "licence", "group"):
        assert f"| {key} | {getattr(task, key)} |" in readme
    assert f"| kind | {task.kind.replace('_', ' ')} |" in readme
    assert f"| score | `{task.metric}` |" in readme
    assert f"| chance | {'none' if task.chance is None else f'{task.chance:g}'}" in readme
    assert {path.name for path in path.parent.iterdir()} == {"task.yaml", "README.md"}


@pytest.mark.parametrize("name", known_suites())
def test_every_suite_is_whole(name):
    suite = read_suite(name)
    assert known_suites()[name].read_text().startswith("# ")
    assert name in OFFLINE + PAPERS
    for asked in suite.asked:
        assert isinstance(asked.task, TaskSpec if name in OFFLINE else HarnessTask)
        assert asked.task.chance is not None or asked.task.metric == "bits_per_byte"
    if name in PAPERS:
        assert suite.spec.source.startswith("arXiv:")
        assert suite.spec.offline in OFFLINE
    assert f"`{name}`" in (resources.folder("eval") / "README.md").read_text()


def test_every_task_is_asked_by_a_suite():
    asked = {one.name for name in known_suites() for one in read_suite(name).asked}
    assert asked == {*known_tasks(), *harness_file().tasks}


def test_the_default_suite_executes_nothing_and_asks_every_domain():
    suite = read_suite("default")
    assert not any(asked.task.executes for asked in suite.asked)
    assert {asked.group for asked in suite.asked} >= {"general", "code", "law", "math"}
    assert [one.name for one in read_suite("written").asked if one.task.executes] == ["human-eval"]


def test_shots_are_the_papers():
    bam = {asked.name: asked.shots for asked in read_suite("bam-downstream").asked}
    assert bam == {
        "gsm8k": 8, "minerva_math": 4, "humaneval": 0, "mbpp": 3, "nq_open": 0, "triviaqa": 0,
        "legalbench_international_citizenship_questions": 4, "arc_easy": 0, "arc_challenge": 0,
        "social_iqa": 0, "piqa": 0, "winogrande": 0, "mmlu": 5,
    }  # fmt: skip
    btx = {asked.name: asked.shots for asked in read_suite("btx").asked}
    del bam["legalbench_international_citizenship_questions"]
    assert btx == bam | {"nq_open": 5, "triviaqa": 5}


@pytest.mark.parametrize(
    ("name", "table"), [("bam-downstream", "bam-table-3"), ("btx", "btx-table-8"),
                        ("lory", "lory-table-1")]
)  # fmt: skip
def test_groups_are_the_columns_of_the_printed_table(name, table):
    suite = read_suite(name)
    groups = [asked.group for asked in suite.asked] + [one.group for one in suite.spec.lacking]
    assert set(groups) == set(read_table(table).domains("task_accuracy"))
    if name != "bam-downstream":  # there a column holds several tasks
        assert len(set(groups)) == len(groups)


FILES = {
    "gsm8k": "gsm8k/gsm8k.yaml",
    "minerva_math": "benchmarks/minerva_math.yaml",
    "humaneval": "humaneval/humaneval.yaml",
    "mbpp": "mbpp/mbpp.yaml",
    "legalbench_international_citizenship_questions": (
        "legalbench/international_citizenship_questions.yaml"
    ),
    "agieval_lsat_ar": "agieval/lsat-ar.yaml",
    "agieval_lsat_lr": "agieval/lsat-lr.yaml",
    "agieval_lsat_rc": "agieval/lsat-rc.yaml",
    "nq_open": "nq_open/nq_open.yaml",
    "triviaqa": "triviaqa/default.yaml",
    "arc_easy": "arc/arc_easy.yaml",
    "arc_challenge": "arc/arc_challenge.yaml",
    "social_iqa": "siqa/siqa.yaml",
    "piqa": "piqa/piqa.yaml",
    "winogrande": "winogrande/default.yaml",
    "boolq": "super_glue/boolq/default.yaml",
    "hellaswag": "hellaswag/hellaswag.yaml",
    "race": "race/race.yaml",
    "sst2": "glue/sst2/default.yaml",
    "mrpc": "glue/mrpc/default.yaml",
    "mmlu": "mmlu/default/_mmlu.yaml",
}


@pytest.mark.parametrize("name", harness_file().tasks)
def test_what_is_said_of_lm_evals_tasks_stands_in_its_files(name):
    yaml = pytest.importorskip("yaml")
    folder = Path(importlib.util.find_spec("lm_eval").submodule_search_locations[0]) / "tasks"
    task = harness_file().tasks[name]

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_constructor("!function", lambda loader, node: f"!function {node.value}")

    def read(path):
        found = yaml.load(path.read_text(), Loader)
        return (read(path.parent / found.pop("include")) if "include" in found else {}) | found

    config = read(folder / FILES[name])
    assert config.get("task") == name or config.get("group") == name
    assert str(config["metadata"]["version"]) == task.version
    members = [config]
    if name == "minerva_math":
        files = sorted((folder / name).glob("minerva_math_*.yaml"))
        members = [read(path) for path in files]
        assert {one["task"] for one in members} == set(config["task"])
    elif name == "mmlu":
        members = [read(path) for path in sorted((folder / "mmlu/default").glob("mmlu_*.yaml"))]
    assert {one["dataset_path"] for one in members} == {task.dataset}
    named = [one.get("dataset_name") for one in members]
    assert sorted(filter(None, named)) == sorted(task.subsets)
    assert all(("!function" in str(one)) == task.code for one in members)
    assert all(bool(one.get("unsafe_code")) == task.executes for one in members)
    metrics = [str(metric["metric"]) for metric in members[0]["metric_list"]]
    assert any(metric.endswith(task.metric) for metric in metrics)
    filters = [one["name"] for one in members[0].get("filter_list", [{"name": "none"}])]
    assert task.filter in filters


def test_the_version_of_lm_eval_is_the_one_that_was_read():
    metadata = pytest.importorskip("importlib.metadata")
    assert metadata.version("lm-eval") == harness_file().package


@pytest.mark.parametrize(
    ("read", "name", "told"),
    [
        (read_task, "tort_law", "tort_law: must be a known task, got 'tort_law'. Did you mean `to"),
        (read_suite, "defualt", "must be a known suite, got 'defualt'. Did you mean `default`?"),
        (read_suite, "xyz", "must be a known suite, got 'xyz'. Known: bam-downstream, "),
        (read_suite, "", "an empty name: must be a known suite, got ''. Known: "),
        (read_task, "no/such.yaml", "no/such.yaml: the file must be readable"),
    ],
)  # fmt: skip
def test_an_unknown_name_is_told_with_the_nearest(read, name, told):
    with pytest.raises(SpecError) as caught:
        read(name)
    assert told in str(caught.value)


def edited_task(tmp_path, name, old, new):
    text = known_tasks()[name].read_text()
    assert old in text
    path = tmp_path / name / "task.yaml"
    path.parent.mkdir()
    path.write_text(text.replace(old, new, 1))
    return path


TORT = [
    ("chance: 0.25", "chance: 0.5", "9:1: chance must be 0.25, what guessing gives here, got 0.5"),
    ("chance: 0.25", "chance: null", "9:1: chance must be 0.25, what .* here, got null"),
    ("chance: 0.25\n", "", "chance must be given"),
    ("kind: multiple_choice", "kind: cloze", "7:1: kind must be multiple_choice with documents of"),
    ("metric: acc_norm", "metric: pass@1", "8:1: metric must be acc or acc_norm or acc_mutual_in"),
    ("shots: 0", "shots: 6", r"10:1: shots must be at most examples \(5\), got 6"),
    ('version: "1.0"', "version: 1.0", "4:1: version must be a string"),
    ("name: tort-law", "name: torts", "3:1: name must be its folder's name 'tort-law', got 'tort"),
    ("scored:", "score:", "documents.score must be a known key. Did you mean `scored`"),
    ("build: questions", "build: quiz", "documents must have a build of 'continuation'"),
    ("choices: 4", "choices: 1", "documents.choices must be >= 2, got 1"),
    ("sha256: 0abc", "sha256: xabc", "documents.file.sha256 must match"),
]
OTHERS = [
    ("human-eval-loss", "chance: null", "chance: 0.0", "chance must be null: a loss has none, got"),
    ("human-eval", "characters: null", "characters: 9", "must be null where a completion is teste"),
    ("human-eval-loss", "characters: 240", "characters: null", "must be a number for a loss, got"),
    ("arithmetic", "seed: 1000000", "seed: 1", "rng_seed must differ from trained.rng_seed, got 1"),
    ("arithmetic", "choices: 4", "choices: 1", "kind must be generate with documents of build ex"),
    ("code-next-line", "[5, 60]", "[5]", "documents.answer_characters"),
]


@pytest.mark.parametrize(
    ("name", "old", "new", "told"), [*(("tort-law", *one) for one in TORT), *OTHERS]
)
def test_what_is_wrong_with_a_task_is_told_with_its_place(name, old, new, told, tmp_path):
    path = edited_task(tmp_path, name, old, new)
    with pytest.raises(SpecError, match=told) as caught:
        read_task(str(path))
    assert f"{name}/task.yaml" in str(caught.value)


def suite_file(tmp_path, *tasks, more=""):
    lines = "".join(f"  - {{task: {task}, shots: {shots}, group: law}}\n" for task, shots in tasks)
    path = tmp_path / "mine.yaml"
    path.write_text(f"schema: 1\nname: mine\ntitle: mine\n{more}tasks:\n{lines}")
    return str(path)


def test_a_suite_may_name_a_task_beside_it(tmp_path):
    edited_task(tmp_path, "tort-law", "version: ", "version: ")
    given = [("tort-law/task.yaml", 5), ("jee-math", 0), ("gsm8k", 8)]
    suite = read_suite(suite_file(tmp_path, *given))
    assert [asked.name for asked in suite.asked] == ["tort-law", "jee-math", "gsm8k"]
    assert [asked.shots for asked in suite.asked] == [5, 0, 8]


def test_what_is_wrong_with_a_suite_is_told_at_once(tmp_path):
    edited_task(tmp_path, "tort-law", "chance: 0.25", "chance: 0.5")
    tasks = [("tort-lore", 0), ("gsm8", 0), ("jee-math", 6), ("jee-math", 0),
             ("tort-law/task.yaml", 0)]  # fmt: skip
    with pytest.raises(SpecError) as caught:
        read_suite(suite_file(tmp_path, *tasks, more="offline: defaults\n"))
    file, task = tmp_path / "mine.yaml", tmp_path / "tort-law" / "task.yaml"
    assert caught.value.problems == [
        f"{file}:4:1: offline must be a known suite, got 'defaults'. Did you mean `default`?",
        f"{file}:6:6: tasks.0.task must be a known task, got 'tort-lore'. Did you mean `tort-law`?",
        f"{file}:7:6: tasks.1.task must be a known task, got 'gsm8'. Did you mean `gsm8k`?",
        f"{file}:8:22: tasks.2.shots must be at most the 5 examples that jee-math sets aside, "
        "got 6.",
        f"{file}:9:6: tasks.3.task must stand once, got 'jee-math' again (jee-math). Remove one.",
        f"{task}:9:1: chance must be 0.25, what guessing gives here, got 0.5.",
    ]


def test_a_suite_bears_its_files_name_and_asks_something(tmp_path):
    path = Path(suite_file(tmp_path, ("jee-math", 0)))
    with pytest.raises(SpecError, match="name must be the file's name 'yours', got 'mine'"):
        read_suite(str(path.rename(tmp_path / "yours.yaml")))
    with pytest.raises(SpecError, match="tasks must"):
        read_suite(suite_file(tmp_path))
