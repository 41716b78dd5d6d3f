"""Every arm of every shipped ablation trains: two steps of each stage, on the fixture's text.

The stages are those of the shipped specs at their own scale, with fewer steps, smaller batches and
the fixture's corpus under the names of their domains; so each method, router, order and setting is
built, proved and trained. What a run of such length gives is no result.
"""

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bam_lab.data.sources.local import inputs_digest
from bam_lab.record.metrics import NAME as METRICS
from bam_lab.record.metrics import read as read_metrics
from bam_lab.record.numerics import Numerics
from bam_lab.run.context import StageContext
from bam_lab.run.graph import build_graph
from bam_lab.run.stage import Stage
from bam_lab.run.stages import STAGES
from bam_lab.spec.corpus import CorpusSpec
from bam_lab.spec.load import list_ablations, load_ablation
from bam_lab.spec.reader import load, validate

pytestmark = pytest.mark.slow

FIXTURES = Path(__file__).parents[1] / "fixtures"
ABLATIONS = [path.stem for path in list_ablations()]
STEPS, ROWS = 2, 2
VOCABULARY = 512
FILES = {
    "general": "tales",
    "code": "functions",
    "law": "contracts",
    "math": "exercises",
    "python": "functions",
    "javascript": "classes",
    "literature": "places",
    "manuals": "statutes",
    "french": "proofs",
}
"""The fixture's file that stands for each domain of the shipped corpora."""


class Runs:
    """Run stages in this process, each once; know them by their fingerprints."""

    def __init__(self, root: Path):
        self.root = root
        self.folders: dict[str, Path] = {}

    def run(self, stage: Stage, inputs: dict[str, Path]) -> Path:
        work = self.root / stage.key
        if stage.fingerprint not in self.folders:
            work.mkdir(parents=True)
            context = StageContext(
                name=stage.name,
                label=stage.label,
                spec=stage.spec,
                inputs=inputs,
                settings=stage.settings,
                threads=1,
                work=work,
                cache=self.root / "cache",
                numerics=Numerics("float32", "cpu"),
                facts={},
                report=lambda progress: None,
                stop=threading.Event(),
            )
            STAGES[stage.name](context)
            self.folders[stage.fingerprint] = work
        return self.folders[stage.fingerprint]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("catalogue"))


def corpus_of(domains: list[str]) -> CorpusSpec:
    """Return the fixture's corpus with one source under each of the domains' names."""
    spec, problems = validate(load(FIXTURES / "corpus.yaml"), CorpusSpec)
    assert spec is not None, problems
    sources = {
        source.pattern.removesuffix(".jsonl"): source.model_copy(
            update={"folder": str(FIXTURES / "corpus")}
        )
        for domain in spec.domains.values()
        for source in domain.sources
    }
    like = spec.domains["general"]
    made = {
        name: like.model_copy(
            update={
                "title": name,
                "min_megabytes": 0.001,
                "sources": (sources[FILES[name]].model_copy(update={"name": name}),),
            }
        )
        for name in domains
    }
    return spec.model_copy(update={"domains": made})


def short(stage: Stage, before: dict[str, int]) -> Stage:
    """Return a stage with two steps (after those of the stretch it continues) and small batches."""
    spec: dict[str, Any] = {**stage.spec}
    if "model" in spec:
        spec["model"] = {**spec["model"], "vocab_size": VOCABULARY}
    if "vocab_size" in spec:
        spec["vocab_size"] = VOCABULARY
    if "size" in spec:
        spec["size"] = {**spec["size"], "batch_sequences": ROWS, "warmup_steps": 0}
        first = before.get(stage.inputs.get("before", ""), 0)
        if first:
            spec["first_step"] = first
        spec["steps"] = first + STEPS
        if spec.get("decay_steps"):
            spec["decay_steps"] = STEPS
    if "pools" in spec:
        spec["pools"] = dict.fromkeys(spec["pools"], 2)
    return replace(stage, spec=spec)


@pytest.mark.parametrize("ablation", ABLATIONS)
def test_every_arm_trains_two_steps(ablation: str, runs: Runs) -> None:
    resolved = load_ablation(ablation)
    domains = [name for name in resolved.corpus.domains if name in FILES]
    graph, corpus = build_graph(resolved, 1, " ".join(domains)), corpus_of(domains)
    steps: dict[str, int] = {}
    trained = 0
    for fingerprint, stage in graph.stages.items():
        if stage.name in ("evaluate", "calibrate"):
            continue
        made = short(stage, steps)
        if stage.name == "corpus":
            made = replace(
                made,
                spec={"files": inputs_digest(corpus)},
                settings={"corpus": corpus.model_dump(mode="json", by_alias=True)},
            )
        folder = runs.run(made, {role: runs.folders[key] for role, key in stage.inputs.items()})
        if "steps" in made.spec:
            steps[fingerprint] = made.spec["steps"]
            rows = [row for row in read_metrics(folder / METRICS) if "loss" in row]
            assert rows and all(0 < row["loss"] < 20 for row in rows), stage.label
            trained += 1
    assert trained >= len(resolved.arms) - sum(m.method == "btm" for m in resolved.arms.values())
