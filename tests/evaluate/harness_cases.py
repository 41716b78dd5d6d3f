"""What the tests of tasks share: a tokenizer of its own, models that fit it, tasks in memory."""

import random
from functools import cache
from itertools import product

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from bam_lab.evaluate.answering import Words, words_of
from bam_lab.evaluate.harness_files import in_memory
from bam_lab.spec.model import END_OF_TEXT_ID
from tests.model.cases import DENSE, model_of

VOCAB = 320
SYLLABLES = [a + b for a, b in product("bdklmnprst", "aeiou")]


def sentence(seed, words=8):
    rnd = random.Random(seed)
    return " ".join("".join(rnd.choices(SYLLABLES, k=rnd.randint(1, 3))) for _ in range(words))


@cache
def tokenizer() -> Tokenizer:
    """Return a byte-level BPE as the project's own, of 320 tokens."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    made.train_from_iterator([sentence(i, 40) for i in range(30)], trainer)
    assert made.token_to_id("<|endoftext|>") == END_OF_TEXT_ID
    assert made.get_vocab_size() == VOCAB
    made.encode_special_tokens = True
    return made


def words() -> Words:
    return words_of(tokenizer())


def model(method=DENSE, block="serial", **changes):
    return model_of(method, block, vocab_size=VOCAB, **changes).eval()


def choice_documents(n, choices=4):
    return [
        {
            "question": sentence(i, 3 + i % 9),
            "choices": [sentence(1000 * i + j + 1, 1 + j) for j in range(choices)],
            "gold": i % choices,
        }
        for i in range(n)
    ]


def choice_task(name="choice", n=12, documents=None, **changes):
    """Return a multiple-choice task in memory."""
    config = {
        "task": name,
        "output_type": "multiple_choice",
        "test_split": "test",
        "fewshot_split": "train",
        "doc_to_text": "{{question}}",
        "doc_to_choice": "choices",
        "doc_to_target": "gold",
        "metric_list": [
            {"metric": metric, "aggregation": "mean", "higher_is_better": True}
            for metric in ("acc", "acc_norm")
        ],
        "metadata": {"version": 2.0, "chance": 0.25},
    }
    splits = {"test": documents or choice_documents(n), "train": choice_documents(30)[20:]}
    return in_memory(config | changes, splits)


def rolling_task(name="rolling", documents=None, **changes):
    config = {
        "task": name,
        "output_type": "loglikelihood_rolling",
        "test_split": "test",
        "doc_to_text": "",
        "doc_to_target": "{{text}}",
        "metric_list": [
            {"metric": metric, "aggregation": aggregation, "higher_is_better": False}
            for metric, aggregation in (
                ("word_perplexity", "weighted_perplexity"),
                ("byte_perplexity", "weighted_perplexity"),
                ("bits_per_byte", "bits_per_byte"),
            )
        ],
        "metadata": {"version": 1},
    }
    documents = documents or [{"text": sentence(i, 5 + 30 * (i % 4))} for i in range(6)]
    return in_memory(config | changes, {"test": documents})


def last_word_task(name="last-word", **changes):
    """Return a task of one continuation a document, as LAMBADA is."""
    config = {
        "task": name,
        "output_type": "loglikelihood",
        "test_split": "test",
        "doc_to_text": "{{text}}",
        "doc_to_target": " {{word}}",
        "metric_list": [
            {"metric": "perplexity", "aggregation": "perplexity", "higher_is_better": False},
            {"metric": "acc", "aggregation": "mean", "higher_is_better": True},
        ],
        "metadata": {"version": 1},
    }
    documents = [{"text": sentence(i), "word": sentence(50 + i, 1)} for i in range(8)]
    return in_memory(config | changes, {"test": documents})


def completion_task(name="completion", n=6, **changes):
    config = {
        "task": name,
        "output_type": "generate_until",
        "test_split": "test",
        "doc_to_text": "{{text}}",
        "doc_to_target": "{{word}}",
        "generation_kwargs": {"until": ["\n"], "max_gen_toks": 12, "do_sample": False},
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
        "metadata": {"version": 1},
    }
    documents = [{"text": sentence(i), "word": sentence(50 + i, 1)} for i in range(n)]
    return in_memory(config | changes, {"test": documents})
