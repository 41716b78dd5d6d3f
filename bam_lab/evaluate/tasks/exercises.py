"""Documents of generated questions and answers, apart from those that a corpus holds."""

import random
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable

from bam_lab.errors import InputError
from bam_lab.evaluate.tasks.documents import Built, Item, alike
from bam_lab.spec.tasks import Exercises

Texts = Iterable[tuple[str, str]]
"""(name, text): `generator#number`, and `Question: ...` with `Answer: ...` on the last line."""


def exercises(texts: Texts, spec: Exercises, trained: Collection[str]) -> Built:
    """Return questions with answers to choose from, or to be written where `choices` is 1.

    Wrong answers are those of other questions of the same generator, so that neither their form
    nor their size gives them away more than the question does.

    Args:
        texts: of the generators.
        spec: says how many choices.
        trained: questions that are left out (`question_of` each).

    Raises:
        InputError: a generator has too few answers that differ.
    """
    found: list[Item] = []
    dropped: Counter[str] = Counter()
    answers: dict[str, list[str]] = defaultdict(list)
    seen: set[str] = set()
    for name, text in texts:
        question, answer = _parts(name, text)
        if question in trained:
            dropped["in the corpus"] += 1
        elif question in seen:
            dropped["asked before"] += 1
        elif len(answer) > spec.answer_characters or not answer or "\n" in answer:
            dropped["with no short answer"] += 1
        else:
            source = name.partition("#")[0]
            prompt = f"Question: {question}\nAnswer:"
            found.append({"id": name, "source": source, "prompt": prompt, "target": answer})
            answers[source].append(answer)
        seen.add(question)
    if spec.choices == 1:
        return Built(tuple(found), (), dict(dropped))
    documents = [_chosen(item, answers[item["source"]], spec) for item in found]
    return Built(tuple(documents), (), dict(dropped))


def question_of(text: str) -> str:
    """Return the question of one generated text."""
    return _parts("", text)[0]


def _chosen(item: Item, answers: list[str], spec: Exercises) -> Item:
    rng = random.Random(f"{spec.rng_seed} {item['id']}")
    target, wrong = item["target"], list[str]()
    for other in rng.sample(answers, len(answers)):
        if not any(alike(other, one) for one in (target, *wrong)):
            wrong.append(other)
        if len(wrong) == spec.choices - 1:
            break
    else:
        raise InputError(
            f"{item['source']} must give {spec.choices} answers that differ, got "
            f"{len(wrong) + 1}. Raise documents.items, or take the generator out."
        )
    answer = rng.randrange(spec.choices)
    bare = {key: value for key, value in item.items() if key != "target"}
    return bare | {"choices": [*wrong[:answer], target, *wrong[answer:]], "answer": answer}


def _parts(name: str, text: str) -> tuple[str, str]:
    question, found, answer = text.rpartition("\nAnswer: ")
    if not found or not question.startswith("Question: "):
        raise InputError(f"{name} must be a question and its answer, got {text[:60]!r}.")
    return question.removeprefix("Question: ").strip(), answer.strip()
