"""Tasks of lm-evaluation-harness on our models: parity with its own, and everything that is bad."""

import json
import logging
import math
import os
import random
import sys

import numpy as np
import pytest
import torch
from lm_eval.models.huggingface import HFLM
from transformers import PreTrainedTokenizerFast

from bam_lab.errors import InputError, SpecError
from bam_lab.evaluate.answering import Settings
from bam_lab.evaluate.harness import adapter, evaluate, load_tasks
from bam_lab.evaluate.harness_files import in_memory
from bam_lab.evaluate.likelihood import continuation_nats
from bam_lab.hf.causal import HFCausal
from bam_lab.hf.names import LLAMA, to_hf
from bam_lab.hf.reference import llama
from tests.evaluate.harness_cases import (
    choice_documents,
    choice_task,
    completion_task,
    last_word_task,
    model,
    rolling_task,
    sentence,
    tokenizer,
    words,
)
from tests.model.cases import METHODS

EXACT = Settings("float32")
PARITY = {"abs": 1e-4, "rel": 1e-6}  # nats; theirs are sums in float32: measured 1.2e-4 of 1133
LONG = [{"text": sentence(i, 160)} for i in range(2)]


def scored(tasks, own=None, settings=EXACT, **options):
    return evaluate(tasks, own or model(), words(), settings, **options)


def values(found):
    return {(row["task"], row["metric"]): row["value"] for row in found.rows}


@pytest.fixture(scope="module")
def pair():
    """Return our dense model and lm-eval's own reader of the same weights in transformers."""
    own = model()
    other = llama(own.spec)
    other.load_state_dict(to_hf(own.state_dict(), LLAMA, own.spec))
    theirs = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer(), eos_token="<|endoftext|>", clean_up_tokenization_spaces=False
    )
    reader = HFLM(pretrained=other.eval(), tokenizer=theirs, batch_size=3, device="cpu")
    assert reader.max_length == own.spec.max_seq_len
    return own, HFCausal(other), reader


def mean_of(metric):
    return [{"metric": metric, "aggregation": "mean", "higher_is_better": True}]


TASKS = {
    "choice": choice_task(),
    "cut": choice_task(
        "cut", documents=[d | {"question": sentence(9, 90)} for d in choice_documents(3)]
    ),
    "no-context": choice_task("no-context", doc_to_text=""),
    "spaces": choice_task("spaces", doc_to_text="{{question}}  "),
    "mutual": choice_task("mutual", metric_list=mean_of("acc_mutual_info")),
    "shots": choice_task("shots", num_fewshot=2),
    "last-word": last_word_task(),
    "rolling": rolling_task(),
    "completion": completion_task(),
    "stop": completion_task("stop", generation_kwargs={"until": ["a", "ki"], "max_gen_toks": 20}),
}


@pytest.mark.parametrize("name", TASKS)
def test_lm_evals_own_reader_agrees(pair, name):
    own, other, reader = pair
    (task,) = load_tasks([TASKS[name]]).tasks.values()
    task.set_fewshot_seed(0)
    task.build_all_requests()
    kind = task.instances[0].request_type
    theirs = getattr(reader, kind)(task.instances)
    for ours in (adapter(own, words(), EXACT), adapter(other, words(), EXACT)):
        found = getattr(ours, kind)(task.instances)
        if kind == "generate_until":
            assert found == theirs
        elif kind == "loglikelihood":
            assert [greedy for _, greedy in found] == [greedy for _, greedy in theirs]
            assert [x for x, _ in found] == pytest.approx([x for x, _ in theirs], **PARITY)
        else:
            assert found == pytest.approx(theirs, **PARITY)
        assert (ours.truncated > 0) is (name == "cut")


def test_scores_by_hand():
    own, documents = model(), choice_documents(12)
    found = scored(load_tasks([choice_task()]), own)
    right = right_by_length = 0
    for document in documents:
        encoded = words().encode(document["question"])
        pairs = [(encoded, words().encode(f" {choice}")) for choice in document["choices"]]
        nats = [one.nats for one in continuation_nats(own, pairs, precision="float32")]
        by_length = [x / len(c) for x, c in zip(nats, document["choices"], strict=True)]
        right += nats.index(min(nats)) == document["gold"]
        right_by_length += by_length.index(min(by_length)) == document["gold"]
        (sample,) = [
            s
            for s in found.samples
            if s["doc_id"] == documents.index(document) and s["metric"] == "acc"
        ]
        assert sample["loglikelihoods"] == pytest.approx([-x for x in nats], rel=1e-5)
        assert sample["answer"] == nats.index(min(nats)) and sample["target"] == document["gold"]
        assert sample["value"] == (sample["answer"] == sample["target"])
    assert values(found)[("choice", "acc")] == right / 12
    assert values(found)[("choice", "acc_norm")] == right_by_length / 12
    (row,) = [row for row in found.rows if row["metric"] == "acc"]
    p = right / 12
    assert row["stderr"] == pytest.approx(math.sqrt(p * (1 - p) / 11))
    shown = {k: row[k] for k in ("kind", "version", "filter", "shots", "n", "higher_is_better")}
    assert shown == {
        "kind": "task",
        "version": "2.0",
        "filter": "none",
        "shots": 0,
        "n": 12,
        "higher_is_better": True,
    }
    assert (row["chance"], row["truncated"], row["precision"]) == (0.25, 0, "float32")
    assert (row["batch_tokens"], row["max_len"], row["rule"]) == (8192, 150, "prompt")


def test_bits_per_byte_are_of_all_bytes():
    found = scored(load_tasks([rolling_task(documents=LONG)]))
    nats = sum(-s["loglikelihoods"][0] for s in found.samples if s["metric"] == "bits_per_byte")
    size = sum(len(document["text"].encode()) for document in LONG)
    assert values(found)[("rolling", "bits_per_byte")] == pytest.approx(nats / math.log(2) / size)
    for sample in found.samples:
        if sample["metric"] == "bits_per_byte":
            own = -sample["loglikelihoods"][0] / len(LONG[sample["doc_id"]]["text"].encode())
            assert sample["value"] == pytest.approx(own / math.log(2))
    (bpb,) = [row for row in found.rows if row["metric"] == "bits_per_byte"]
    assert bpb["stderr"] is None and bpb["chance"] is None and not bpb["higher_is_better"]


def test_weights_of_a_tasks_own_scoring():
    """Bits a byte of answers: of all together, and of each."""

    def pairs(document, results):
        return {"bits_per_byte": (results[0][0], len(document["word"]))}

    metric = {"metric": "bits_per_byte", "aggregation": "bits_per_byte", "higher_is_better": False}
    task = last_word_task(metric_list=[metric], process_results=pairs)
    found = scored(load_tasks([task], allow_code=True))
    nats = [-sample["loglikelihoods"][0] for sample in found.samples]
    sizes = [len(sentence(50 + i, 1)) for i in range(8)]
    own = [x / n / math.log(2) for x, n in zip(nats, sizes, strict=True)]
    assert [sample["value"] for sample in found.samples] == pytest.approx(own)
    together = sum(nats) / sum(sizes) / math.log(2)
    assert values(found) == {("last-word", "bits_per_byte"): pytest.approx(together)}


def test_samples_are_sorted_and_hashed():
    found = scored(load_tasks([TASKS["choice"], TASKS["completion"], TASKS["last-word"]]))
    ids = [s["doc_id"] for s in found.samples if (s["task"], s["metric"]) == ("choice", "acc")]
    assert ids == list(range(12))
    columns = {
        "task", "version", "shots", "filter", "doc_id", "doc_hash", "prompt_hash", "target_hash",
        "metric", "value", "loglikelihoods", "answer", "target",
    }  # fmt: skip
    assert all(set(sample) == columns for sample in found.samples)
    assert len({s["doc_hash"] for s in found.samples if s["task"] == "choice"}) == 12
    (made,) = [s for s in found.samples if (s["task"], s["doc_id"]) == ("completion", 0)]
    assert isinstance(made["answer"], str) and made["loglikelihoods"] == []
    assert made["target"] == sentence(50, 1)
    word = next(s for s in found.samples if s["task"] == "last-word")
    assert len(word["loglikelihoods"]) == 1 and word["target"] == f" {sentence(50, 1)}"


def test_any_number_of_models_on_tasks_loaded_once():
    tasks = load_tasks([TASKS["shots"], TASKS["completion"]])
    models = [model(seed=0), model(seed=1)]
    first, second, again = (scored(tasks, own) for own in (*models, models[0]))
    assert first == again
    assert values(first) != values(second) or first.samples != second.samples
    prompts = [[s["prompt_hash"] for s in one.samples] for one in (first, second)]
    assert prompts[0] == prompts[1]  # the same examples before every question
    assert all(task._instances is None for task in tasks.tasks.values())
    fresh = scored(load_tasks([TASKS["shots"], TASKS["completion"]]), models[1])
    assert fresh == second


@pytest.mark.parametrize(
    "name", ["btx-top-2", "lory-own_mean", "segment_moe-bos-top-2-renormalized"]
)
def test_batches_change_no_score(name):
    tasks, own = load_tasks([TASKS["choice"], TASKS["rolling"]]), model(METHODS[name])
    one, other = (scored(tasks, own, Settings("float32", batch_tokens=b)) for b in (1, 4000))
    for left, right in zip(one.samples, other.samples, strict=True):
        assert left["loglikelihoods"] == pytest.approx(right["loglikelihoods"], rel=1e-5)
        assert left["answer"] == right["answer"]


def test_bf16_and_limit_are_told():
    found = scored(load_tasks([TASKS["choice"]]), settings=Settings("bf16-mixed"), limit=5)
    assert {(row["n"], row["precision"]) for row in found.rows} == {(5, "bf16-mixed")}
    with pytest.raises(SpecError, match="limit must be at least 1, got 0"):
        scored(load_tasks([TASKS["choice"]]), limit=0)


def test_requests_that_are_cut_are_counted_for_each_task():
    tasks = load_tasks([TASKS["cut"], TASKS["choice"], TASKS["completion"]])
    for _ in range(2):
        counts = {row["task"]: row["truncated"] for row in scored(tasks).rows}
        assert counts == {"cut": 12, "choice": 0, "completion": 0}  # 3 documents of 4 choices
    counts = {
        row["task"]: row["truncated"]
        for row in scored(tasks, settings=Settings("float32", max_len=24)).rows
    }
    assert counts["completion"] == 6


def test_bootstrap_runs_in_this_process(monkeypatch):
    monkeypatch.setattr("multiprocessing.Pool", None)
    metrics = [{"metric": "acc", "aggregation": "nanmean", "higher_is_better": True}]
    choices = load_tasks([choice_task(metric_list=metrics)])
    (row,) = scored(choices).rows
    p = row["value"]
    assert row["stderr"] == pytest.approx(math.sqrt(p * (1 - p) / 12), rel=0.1)
    none = scored(choices, bootstrap_iters=0)
    words_too = scored(load_tasks([TASKS["last-word"]]), bootstrap_iters=0)
    assert {row["stderr"] for row in none.rows + words_too.rows} == {None}


def likely(*nats):
    """Return a task of as many documents, each of that many nats."""

    def own(document, results):
        return {"perplexity": -nats[int(document["number"])], "acc": 0.0}

    documents = [{"text": "a", "word": "b", "number": i} for i in range(len(nats))]
    config = last_word_task(process_results=own)
    return in_memory(config, {"test": documents})


def test_the_error_of_a_perplexity_is_that_of_its_mean():
    """Drawn anew, its error was above the perplexity: less its error that was negative."""
    nats = [1.0, 2.0, 4.0, 60.0]
    found = scored(load_tasks([likely(*nats)], allow_code=True))
    (row,) = [row for row in found.rows if row["metric"] == "perplexity"]
    spread = math.sqrt(sum((x - 16.75) ** 2 for x in nats) / 3 / 4)
    assert row["value"] == pytest.approx(math.exp(16.75))
    assert row["stderr"] == pytest.approx(math.exp(16.75) * spread)
    own = [sample["value"] for sample in found.samples if sample["metric"] == "perplexity"]
    assert own == pytest.approx([math.exp(x) for x in nats])


def test_a_perplexity_whose_square_is_no_float_costs_no_scores():
    found = scored(load_tasks([likely(1.0, 1200.0)], allow_code=True))
    assert found.failures == {}
    rows = {row["metric"]: row for row in found.rows}
    assert rows["perplexity"]["value"] == pytest.approx(math.exp(600.5))
    assert rows["perplexity"]["stderr"] > 0 and rows["acc"]["value"] == 0.0
    assert None in [sample["value"] for sample in found.samples]


def test_nothing_is_written_to_the_terminal_and_no_seed_moves(capfd):
    random.seed(5), np.random.seed(5), torch.manual_seed(5)
    wanted = random.random(), np.random.rand(), torch.rand(1).item()
    random.seed(5), np.random.seed(5), torch.manual_seed(5)
    tasks = load_tasks([TASKS["last-word"], TASKS["shots"], TASKS["completion"]])
    scored(tasks)
    assert (random.random(), np.random.rand(), torch.rand(1).item()) == wanted
    assert capfd.readouterr() == ("", "")
    assert logging.getLogger("lm_eval").handlers == []


def test_offline_is_the_default():
    load_tasks([TASKS["choice"]])
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "DISABLE_MULTIPROC"):
        assert os.environ[name] == "1"


def test_a_task_with_nan_fails_by_name_and_the_rest_goes_on():
    own = model()
    own.embedding.data[words().encode("Z")[0]] = math.nan
    documents = choice_documents(4)
    documents[2]["question"] = "bZ"
    bad = choice_task("bad", documents=documents)
    worse = completion_task("worse", doc_to_text="Z{{text}}")
    found = scored(load_tasks([bad, TASKS["choice"], worse]), own)
    assert found.failures.keys() == {"bad", "worse"}
    assert "must have a finite likelihood, got nan nats (4 of 16 pairs)" in found.failures["bad"]
    assert {row["task"] for row in found.rows} == {s["task"] for s in found.samples} == {"choice"}


def second(**document):
    """Return a task whose second document is this one."""
    return choice_task(documents=[{"question": "b", "choices": ["a", "k"], "gold": 0}, document])


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (
            second(question="b", choices=["a", ""], gold=0) | {"target_delimiter": ""},
            "document 1 must have a continuation to score, got none",
        ),
        (
            second(question="b", choices=["a", "k"], gold=7),
            "document 1: doc_to_target must name one of 2 choices, got 7",
        ),
        (
            second(question="b", choices=[sentence(1, 160), "a"], gold=0),
            "continuation must be at most max_len 150 tokens",
        ),
        (second(question=None, choices=None, gold=0), "the task must run, got TypeError"),
        (rolling_task(documents=[{"text": "a"}, {"text": ""}]), "document 1 must have text"),
        (completion_task(generation_kwargs={"max_gen_toks": 256}), "from 1 to 149"),
        (completion_task(generation_kwargs={"num_beams": 2}), "num_beams"),
    ],
)
def test_documents_that_cannot_be_asked(task, message):
    found = scored(load_tasks([task | {"task": "bad"}, last_word_task()]))
    assert message in found.failures["bad"]
    assert {row["task"] for row in found.rows} == {"last-word"}


def test_tokens_that_merge_over_the_border():
    """One token holds the end of the context and the whole answer: there is nothing to score."""
    assert len(words().encode("ki")) == 1
    documents = [{"question": "k", "choices": ["i", "a"], "gold": 0}]
    task = choice_task("merged", documents=documents, target_delimiter="")
    found = scored(load_tasks([task]))
    assert "they are one token together. Begin it with a space" in found.failures["merged"]


def test_a_document_of_one_token():
    found = scored(load_tasks([rolling_task(documents=[{"text": "b"}])]))
    assert len(words().encode("b")) == 1 and not found.failures
    assert found.samples[0]["loglikelihoods"][0] < 0


def test_a_model_that_no_task_can_read():
    with pytest.raises(SpecError, match="got smear"):
        scored(load_tasks([TASKS["choice"]]), model(METHODS["smear"]))


def test_a_defect_of_ours_keeps_its_traceback(monkeypatch):
    tasks, own = load_tasks([TASKS["choice"]]), model()
    monkeypatch.setattr(own, "forward", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        scored(tasks, own)


def group_of(tasks, **settings):
    metric = {"metric": "acc", "aggregation": "mean", "weight_by_size": True}
    return {"group": "all", "task": tasks, "aggregate_metric_list": [metric | settings]}


def test_a_group_is_averaged():
    members = [choice_task("one", 12), choice_task("two", 4)]
    found = scored(load_tasks([group_of(members)]))
    score = {row["task"]: row for row in found.rows if row["metric"] == "acc"}
    parts = [score["all::one"], score["all::two"]]
    assert score["all"]["value"] == pytest.approx(
        (12 * parts[0]["value"] + 4 * parts[1]["value"]) / 16
    )
    assert (score["all"]["n"], score["all"]["kind"], score["all"]["version"]) == (
        16,
        "group",
        "2.0",
    )
    plain = scored(load_tasks([group_of(members, weight_by_size=False)]))
    (mean,) = [row["value"] for row in plain.rows if row["kind"] == "group"]
    assert mean == pytest.approx((parts[0]["value"] + parts[1]["value"]) / 2)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"metadata": {"version": 3}}, "equal versions, got all::one 2.0, all::two 3"),
        ({"num_fewshot": 1}, "equal numbers of shots, got all::one 0, all::two 1"),
        ({"metric_list": mean_of("acc_norm")}, "that all its tasks have, got acc of 1 of 2"),
        (
            {"documents": [{"question": "k", "choices": ["a", "b"], "gold": g} for g in (0, 7)]},
            "a score of every task, got none of all::two",
        ),
    ],
)
def test_averages_of_what_is_not_alike_are_refused(other, message):
    members = [choice_task("one"), choice_task("two", **other)]
    found = scored(load_tasks([group_of(members)]))
    assert message in found.failures["all"]
    assert not [row for row in found.rows if row["kind"] == "group"]
    assert [row for row in found.rows if row["task"] == "all::one"]


def test_chance_is_of_accuracies_or_by_metric():
    tasks = load_tasks(
        [
            choice_task("by-metric", metadata={"chance": {"acc_norm": 0.5}}),
            rolling_task(metadata={"chance": 0.25}),
        ]
    )
    chance = {(row["task"], row["metric"]): row["chance"] for row in scored(tasks).rows}
    assert chance[("by-metric", "acc")] is None and chance[("by-metric", "acc_norm")] == 0.5
    assert chance[("rolling", "bits_per_byte")] is None
    assert tasks.facts["by-metric"].version == "unversioned"
    with pytest.raises(SpecError, match=r"metadata.chance must be between 0 and 1, got 25"):
        load_tasks([choice_task(metadata={"chance": 25})])


def test_shots_come_from_elsewhere():
    alike = {"fewshot_split": None, "num_fewshot": 2}
    with pytest.raises(SpecError, match="a question would be its own example"):
        load_tasks([choice_task(**alike)])
    with pytest.raises(SpecError, match="at most the 10 examples that there are, got 11"):
        load_tasks([choice_task()], shots=11)
    tasks = load_tasks([choice_task(num_fewshot=3)], shots=0)
    assert {row["shots"] for row in scored(tasks).rows} == {0}
    own = load_tasks(
        [choice_task(fewshot_split="test")], shots=11
    )  # lm-eval leaves the question out
    assert own.facts["choice"].shots == 11
    with pytest.raises(SpecError, match="at most the 11 examples"):
        load_tasks([choice_task(fewshot_split="test")], shots=12)


def write_task(folder, name="filed", text="", **settings):
    folder.mkdir(parents=True, exist_ok=True)
    documents = choice_documents(5)
    (folder / "rows.jsonl").write_text("".join(json.dumps(d) + "\n" for d in documents))
    base = {key: value for key, value in choice_task().items() if key != "custom_dataset"}
    own = {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": "rows.jsonl"}},
        "fewshot_split": None,
    }
    (folder / f"{name}.yaml").write_text(json.dumps(base | own | settings)[:-1] + text + "}")


def test_files_are_found_wherever_the_process_stands(tmp_path, monkeypatch):
    write_task(tmp_path / "tasks" / "deep", tag="mine")
    (tmp_path / "tasks" / "both.yaml").write_text("group: both\ntask: [filed]\n")
    monkeypatch.chdir(tmp_path)
    found = [scored(load_tasks([n], [tmp_path / "tasks"])) for n in ("filed", "mine", "both")]
    memory = choice_task("filed", documents=choice_documents(5))
    wanted = values(scored(load_tasks([memory])))
    assert all(values(one) == wanted for one in found)
    assert {row["n"] for row in found[0].rows} == {5}


CODE = """import pathlib
pathlib.Path(__file__).with_name('ran').touch()

def f(doc):
    return 'b'
"""


@pytest.mark.parametrize("name", ["coded", "both", "mine"])
def test_code_runs_only_where_it_is_allowed(tmp_path, name):
    write_task(tmp_path, "coded", ', "doc_to_text": !function utils.f', tag="mine")
    path = tmp_path / "rows.jsonl"
    text = (tmp_path / "coded.yaml").read_text().replace('"rows.jsonl"', json.dumps(str(path)))
    (tmp_path / "coded.yaml").write_text(text)
    (tmp_path / "utils.py").write_text(CODE)
    (tmp_path / "both.yaml").write_text("group: both\ntask: [coded]\n")
    with pytest.raises(SpecError, match=r"coded must be data alone, got Python code: coded.yaml:1"):
        load_tasks([name], [tmp_path])
    assert not (tmp_path / "ran").exists()


def test_code_that_is_allowed(tmp_path, monkeypatch):
    documents = choice_documents(3)
    task = choice_task("coded", documents=documents, doc_to_text=lambda document: "b")
    with pytest.raises(SpecError, match="coded must be data alone, got Python code: doc_to_text"):
        load_tasks([task])
    plain = choice_task("coded", documents=documents, doc_to_text="b")
    allowed = scored(load_tasks([task], allow_code=True))
    assert values(allowed) == values(scored(load_tasks([plain])))
    unsafe = choice_task(unsafe_code=True)
    with pytest.raises(SpecError, match="Python code: unsafe_code"):
        load_tasks([unsafe])
    assert scored(load_tasks([unsafe], allow_code=True)).rows


@pytest.mark.parametrize(
    "template",
    [
        "{{ cycler.__init__.__globals__.os.getcwd() }}",
        "{{ cycler['__in' ~ 'it__'] }}",
        "{{ [cycler] | map(attribute='mro') | list }}",
        "{{ [cycler] | sort(attribute='__init__.__globals__') }}",
        "{{ cycler | attr('mro') }}",
        "{{ ''['__cl' ~ 'ass__'].mro() }}",
        "{{ question[key] }}",
        "{{ (choices | map('upper')).gi_frame.f_builtins['exec'] }}",
        "{{ ['1'].sort(key=(choices | map('upper')).gi_frame.f_builtins['exec']) }}",
        "{{ 'a' | regex_replace('a', question.strip.__self__) }}",
        "{{ '{0.__globals__[os].environ}'.format(lipsum) }}",
        "{{ ''.join.__self__ }}",
        "{{ lipsum(n=1) }}",
        "{{ self._TemplateReference__context }}",
        "{% macro m() %}a{% endmacro %}{{ m.name }}",
    ],
)
def test_templates_reach_plain_data_alone(template):
    """Jinja by itself lets a template reach all of Python."""
    documents = [{**d, "key": "__class__"} for d in choice_documents(2)]
    with pytest.raises(SpecError, match=r"must be of texts, lists and numbers|No filter named"):
        load_tasks([choice_task(documents=documents, doc_to_text=template)])


def test_templates_do_what_tasks_need():
    template = (
        "{% for c in choices %}{{ loop.index0 }}{{ c.strip().split(' ')[0] | upper }}{% endfor %}"
        "{{ choices[gold] }}{{ choices.index(choices[0]) }}{{ about._of }}"
        "{{ about['in'].get('x') }}{% set n = range(2) | list | length %}{{ n + 1 }}"
        "{{ question[1:] | regex_replace('a', 'A') }}"
    )
    documents = [{**d, "about": {"_of": "w", "in": {"x": 7}}} for d in choice_documents(2)]
    tasks = load_tasks([choice_task(documents=documents, doc_to_text=template)])
    (task,), first = tasks.tasks.values(), documents[0]
    heads = [f"{i}{choice.split()[0].upper()}" for i, choice in enumerate(first["choices"])]
    tail = first["question"][1:].replace("a", "A")
    wanted = "".join(heads) + first["choices"][0] + "0w73" + tail
    assert task.doc_to_text(first) == wanted
    assert scored(tasks).rows


def test_metrics_that_are_scripts_are_code():
    metric = {"metric": "some_script", "aggregation": "mean", "higher_is_better": True}
    for task in (
        completion_task(metric_list=[metric]),
        group_of([completion_task(metric_list=[metric])]),
    ):
        with pytest.raises(SpecError, match="Python code: metric some_script"):
            load_tasks([task])


def test_code_in_a_group_is_code():
    group = group_of([choice_task("one", process_docs=len)])
    with pytest.raises(SpecError, match="all must be data alone, got Python code: process_docs"):
        load_tasks([group])
    with pytest.raises(SpecError, match="all must be data alone, got Python code: aggregation"):
        load_tasks([group_of([choice_task("one")], aggregation=max)])


def test_a_configuration_without_a_name():
    with pytest.raises(SpecError, match="must load"):
        load_tasks([{"output_type": "multiple_choice"}])


def test_all_that_cannot_be_loaded_is_told_at_once(tmp_path):
    write_task(tmp_path, "good")
    (tmp_path / "broken.yaml").write_text("task: [1\n")
    with pytest.raises(SpecError) as stopped:
        load_tasks(["goood", "good", choice_task("bare", doc_to_target="{{nobody}}")], [tmp_path])
    told = stopped.value.problems
    assert len(told) == 3
    assert "broken.yaml must be a YAML file of a task" in told[0]
    assert "goood must be a task of the folders given, got none. Did you mean `good`?" in told[1]
    assert "first document make a question, got UndefinedError: 'nobody' is undefined" in told[2]
    with pytest.raises(SpecError, match="choice must be wanted once"):
        load_tasks([choice_task(), choice_task()])


def test_lm_evals_own_tasks_are_not_read():
    with pytest.raises(SpecError, match="hellaswag must be a task of the folders given"):
        load_tasks(["hellaswag"])


def test_warnings_of_lm_eval_are_kept():
    task = choice_task(metric_list=[{"metric": "acc"}])
    assert any("aggregation is not" in one for one in load_tasks([task]).warnings)
    assert load_tasks([choice_task()]).warnings == ()


def test_without_lm_eval_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "lm_eval.evaluator", None)
    with pytest.raises(InputError, match=r"pip install 'bam-lab\[eval\]'"):
        load_tasks([choice_task()])


def test_choices_in_the_context():
    """As in Winogrande: the choices stand in contexts, and the right one is a number."""
    documents = [{"a": "b d", "b": "k", "right": i % 2, "end": "m n"} for i in range(4)]
    config = choice_task(
        "inside",
        documents=documents,
        doc_to_text="right",
        doc_to_choice="{{[a, b]}}",
        doc_to_target="end",
    )
    found = scored(load_tasks([config]))
    assert not found.failures
    assert [s["target"] for s in found.samples if s["metric"] == "acc"] == [0, 1, 0, 1]
    assert all(len(s["loglikelihoods"]) == 2 for s in found.samples)
