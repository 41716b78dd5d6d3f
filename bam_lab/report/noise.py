"""Evaluation noise: how far a score would move on other held-out documents of the same sources.

Losses are averaged over replicates document by document, so this is the noise of the test set
alone, shown beside the spread over replicates and never in its place.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bam_lab.record.files import intact
from bam_lab.record.store import Store
from bam_lab.report.cells import SPLIT, read_csv
from bam_lab.report.evidence import Noise, StageFact
from bam_lab.report.stats import cluster_bootstrap

Document = tuple[str, str]
"""A source and a document's name in it."""

Losses = dict[Document, tuple[float, float, float]]
"""Document to its nats, tokens and bytes."""


def noise_of(
    store: Store, stages: Sequence[StageFact], domains: Sequence[str], baselines: Mapping[str, str]
) -> tuple[Noise, ...]:
    """Return the noise of every arm and domain that has at least one finished evaluation.

    `baselines` names the arm that each arm is compared with.
    """
    arms: dict[str, list[str]] = {}
    for stage in stages:
        if stage.name == "evaluate" and stage.role == "arm" and stage.done and stage.arm:
            arms.setdefault(stage.arm, []).append(stage.key)
    losses = {arm: _losses(store, keys) for arm, keys in arms.items()}
    return tuple(
        _noise(arm, domain, losses[arm][domain], losses.get(baselines[arm], {}).get(domain, {}))
        for arm in arms
        for domain in domains
        if domain in losses[arm]
    )


def _noise(arm: str, domain: str, own: Losses, base: Losses) -> Noise:
    names = sorted(own)
    sources = [source for source, _ in names]
    nats, _, size = np.array([own[name] for name in names]).T
    shared = [name for name in names if name in base]
    difference = 0.0
    if shared:
        gap = np.array([own[name][0] - base[name][0] for name in shared])
        weight = np.array([own[name][1] for name in shared])
        difference = cluster_bootstrap(gap, weight, [source for source, _ in shared])
    return Noise(
        arm=arm,
        domain=domain,
        bits_per_byte_se=cluster_bootstrap(nats / math.log(2), size, sources),
        difference_se=difference,
        documents=len(names),
        sources=len(set(sources)),
    )


def _documents(folder: Path) -> Sequence[Mapping[str, Any]]:
    """Return the losses of documents; older evaluations left them as CSV."""
    if (folder / "documents.csv").exists():
        return read_csv(folder, "documents.csv")
    from bam_lab.record.tables import read_rows  # needs pyarrow, which the others do not

    return read_rows(folder / "documents.parquet")


def _losses(store: Store, keys: Sequence[str]) -> dict[str, Losses]:
    """Return {domain: losses}, nats averaged over the evaluations."""
    sums: dict[str, dict[Document, list[float]]] = {}
    for key in keys:
        with intact(store.stage(key)):
            for row in _documents(store.stage(key)):
                if row["split"] != SPLIT:
                    continue
                domain = sums.setdefault(row["domain"], {})
                document = (row["source"], str(row["document"]))
                entry = domain.setdefault(document, [0.0, 0.0, 0.0])
                entry[0] += float(row["nats"]) / len(keys)
                entry[1] = float(row["tokens"])
                entry[2] = float(row["bytes"])
    return {
        domain: {name: (e[0], e[1], e[2]) for name, e in documents.items()}
        for domain, documents in sums.items()
    }
