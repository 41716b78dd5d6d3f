"""The stage that puts training documents in an order: encoders of `hf/` meet `data/order/`."""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bam_lab.data.order.embed import Embed, tfidf_svd
from bam_lab.data.order.reorder import reorder
from bam_lab.run.context import Progress, StageContext
from bam_lab.run.stages_common import TOKENS, decode
from bam_lab.spec.data import Similar


def order(context: StageContext) -> None:
    """Write every domain's training text in its new order, and `order.json`."""

    def progress(note: str, done: int, total: int) -> None:
        context.check_stop()
        context.report(Progress(done, total, note=note))

    similar = decode(context.settings["order"], Similar)
    digest, records = reorder(
        context.inputs["corpus"],
        context.inputs["tokenizer"] / TOKENS,
        context.work,
        similar,
        embedder_of(similar, context.threads),
        context.threads,
        progress,
    )
    context.facts["digest"] = digest
    context.facts["order"] = {domain: asdict(record) for domain, record in records.items()}


def embedder_of(similar: Similar, threads: int) -> Embed:
    """Return what turns texts into vectors; an encoder is read at once, so that it fails early.

    Raises:
        InputError: its package or folder is not there.
    """
    if similar.embedder == "tfidf_svd":
        return lambda texts: tfidf_svd(texts, similar.dimensions, similar.rng_seed)
    import torch

    from bam_lab.hf import encoder as encoders

    torch.set_num_threads(threads)
    minilm = similar.embedder == "minilm"
    encoder = encoders.load(
        encoders.minilm_folder() if minilm else Path(similar.embedder).expanduser()
    )

    def embed(texts: Iterable[str]) -> NDArray[np.float32]:
        return encoders.embed(encoder, texts)

    return embed
