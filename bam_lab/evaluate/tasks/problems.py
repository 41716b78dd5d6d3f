"""Documents of HumanEval (arXiv:2107.03374): a function's head, and its body or its test.

At small scale no completion passes a test; the loss of the canonical solutions tells models apart.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from bam_lab.errors import InputError
from bam_lab.evaluate.tasks.documents import Built, Item
from bam_lab.spec.tasks import HumanEval, Kind

STOPS = ("\nclass", "\ndef", "\n#", "\nif", "\nprint")
"""What ends a completion: the paper's, §2.2."""


def human_eval(rows: Iterable[tuple[str, Any]], kind: Kind, spec: HumanEval) -> Built:
    """Return documents of rows, (place, row) each.

    Raises:
        InputError: a row is no problem of HumanEval.
    """
    found = []
    dropped: Counter[str] = Counter()
    for place, row in rows:
        try:
            item = _item(row, spec.answer_characters)
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"{place} must be a problem of HumanEval, got {type(error).__name__}: {error}. Is "
                "it another file or version?"
            ) from error
        if kind == "generate":
            found.append(item)
        elif item["target"].strip():
            found.append({key: value for key, value in item.items() if key != "test"})
        else:
            dropped["with a long first line"] += 1
    return Built(tuple(found), (), dict(dropped))


def _item(row: Any, characters: int | None) -> Item:
    prompt, solution = row["prompt"], row["canonical_solution"]
    item = {
        "id": row["task_id"],
        "source": "human-eval",
        "prompt": prompt,
        "target": solution,
        "test": f"{row['test']}\ncheck({row['entry_point']})\n",
    }
    if characters is None:
        return item
    if len(solution) > characters:
        solution = solution[: characters + 1].rpartition("\n")[0]
    # lm-eval reads white space at a prompt's end as the beginning of the answer: so do its bytes.
    end = len(prompt.rstrip())
    return item | {"prompt": prompt[:end], "target": prompt[end:] + solution.rstrip()}
