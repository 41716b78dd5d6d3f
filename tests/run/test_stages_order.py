"""The stage that puts documents in order: what its identity covers, and an encoder in it."""

import json
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from bam_lab.data.tokens.encode import DOCUMENT, documents
from bam_lab.errors import InputError
from bam_lab.record.files import write_json
from bam_lab.record.numerics import Numerics
from bam_lab.run.context import StageContext, Stopped
from bam_lab.run.stage import Stage
from bam_lab.run.stage_specs import order_stage
from bam_lab.run.stages import order
from bam_lab.spec.data import Similar

TEXTS = ["cat sat mat", "court hear case", "cat mat", "court case", "cat", "hear"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoder")
    words = ["[PAD]", "[UNK]", "cat", "sat", "mat", "court", "hear", "case"]
    tokens = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    tokens.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokens, unk_token="[UNK]", pad_token="[PAD]"
    ).save_pretrained(folder)
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    BertModel(BertConfig(vocab_size=len(words), intermediate_size=32, **shape)).save_pretrained(
        folder
    )
    return folder


def stage_of(similar: Similar) -> Stage:
    tokenizer = Stage("tokenizer", "", {}, {"corpus": "c"}, "t", 1, 1.0, "tokenizer")
    return order_stage(tokenizer, similar)


def context_of(stage: Stage, folder: Path) -> StageContext:
    for name in ("corpus", "tokens", "work"):
        (folder / name).mkdir(exist_ok=True)
    lines = [json.dumps({"id": "", "source": "s", "text": text}) + "\n" for text in TEXTS]
    (folder / "corpus" / "law.train.jsonl").write_text("".join(lines))
    index = [(2 * i, 1, len(text), 0) for i, text in enumerate(TEXTS)]
    np.save(folder / "tokens" / "law.train.documents.npy", np.array(index, DOCUMENT))
    np.save(folder / "tokens" / "law.train.npy", np.array([[i + 1, 0] for i in range(6)]).ravel())
    counts = {"law": {"train": 12}, "web": {"train": 0}}
    facts = {"digest": "", "vocab_size": 9, "end_of_text": 0, "sources": ["s"], "tokens": counts}
    write_json(folder / "tokens" / "tokens.json", facts)
    return StageContext(
        name="order",
        label="",
        spec=stage.spec,
        inputs={"corpus": folder / "corpus", "tokenizer": folder},
        settings=stage.settings,
        threads=1,
        work=folder / "work",
        cache=folder,
        numerics=Numerics("float32", "cpu"),
        facts={},
        report=lambda progress: None,
        stop=threading.Event(),
    )


def test_an_encoder_is_known_by_its_content_not_by_its_path(encoder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere"
    shutil.copytree(encoder, copy)
    first, second = (stage_of(Similar(embedder=str(folder))) for folder in (encoder, copy))
    assert first.fingerprint == second.fingerprint
    assert str(encoder) not in json.dumps(first.spec)
    (copy / "model.safetensors").write_bytes(b"other")
    assert stage_of(Similar(embedder=str(copy))).fingerprint != first.fingerprint


def test_every_setting_enters_the_fingerprint() -> None:
    others = [
        {}, {"neighbours": 3}, {"traversal": "simple"}, {"index": "faiss"}, {"rng_seed": 1},
        {"dimensions": 8}, {"embedder": "minilm"},
    ]  # fmt: skip
    assert len({stage_of(Similar(**other)).fingerprint for other in others}) == len(others)
    assert stage_of(Similar(neighbours=10)).fingerprint == stage_of(Similar()).fingerprint


def test_a_missing_folder_is_told_before_anything_runs() -> None:
    with pytest.raises(InputError, match=r"minilm or the folder .* got 'nowhere'"):
        stage_of(Similar(embedder="nowhere"))


@pytest.mark.parametrize("by", ["tfidf_svd", "encoder"])
def test_it_writes_the_order_and_its_facts(by: str, encoder: Path, tmp_path: Path) -> None:
    chosen = str(encoder) if by == "encoder" else by
    context = context_of(stage_of(Similar(embedder=chosen, neighbours=2)), tmp_path)
    (context.work / "law.train.npy").write_text("left by an attempt that was killed")
    order(context)
    rows = np.load(context.work / "law.train.rows.npy")
    assert sorted(rows.tolist()) == list(range(6)) and rows.tolist() != list(range(6))
    assert (documents(context.work, "law", "train")["bytes"] == [len(TEXTS[i]) for i in rows]).all()
    record = context.facts["order"]["law"]
    assert record["similarity"] > record["similarity_random"]
    assert context.facts["order"] == json.loads((context.work / "order.json").read_text())
    assert context.facts["order"].keys() == {"law"}  # nothing of `web` is trained on
    digest = context.facts["digest"]
    order(context)
    assert context.facts["digest"] == digest


def test_it_stops_when_asked(tmp_path: Path) -> None:
    context = context_of(stage_of(Similar()), tmp_path)
    context.stop.set()
    with pytest.raises(Stopped):
        order(context)
    assert not (context.work / "order.json").exists()
