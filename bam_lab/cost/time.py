"""Estimate how long stages take, from what the store measured, else from a stated default.

Rates are executed training FLOPs a second and core, or GPU: a stage's ledger gives FLOPs and
seconds times cores.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bam_lab.record import ledger, numerics
from bam_lab.record.files import intact, read_json
from bam_lab.record.stages import TRAINING, StageName
from bam_lab.record.store import IMPORTED, Store

# Training at nano on one core of an idle 2-core AMD EPYC with AVX512-BF16 (experts 88, mixtures 72,
# two-core seed model 52 GFLOP/s a core in bf16); wider models go faster.
DEFAULT_FLOPS: dict[str, float] = {"bf16-mixed": 70e9, "float32": 45e9}
DEFAULT_GPU_FLOPS = 50e12
DEFAULT_SECONDS: dict[str, float] = {
    "corpus": 60.0,
    "tokenizer": 25.0,
    "order": 30.0,
    "calibrate": 30.0,
    "upcycle": 2.0,
    "build_tasks": 20.0,
    "tasks": 30.0,
    "routing": 8.0,
    "probe": 15.0,
    "latency": 60.0,
}


@dataclass(frozen=True)
class Pace:
    """Hold how fast this machine works.

    Attributes:
        flops: executed FLOPs a second and core, by stage; `default` for stages not measured.
        seconds: wall seconds by stage, where FLOPs do not say it.
        default: the rate of a training stage that was never measured.
        measured: the stages whose numbers come from the store.
        on_gpu: whether rates are those of a GPU, of which a stage has one whatever its threads.
    """

    flops: Mapping[str, float]
    seconds: Mapping[str, float]
    default: float
    measured: tuple[str, ...]
    on_gpu: bool = False

    def estimate(self, stage: StageName, executed_flops: int, threads: int) -> float:
        """Return the wall seconds of one stage."""
        if stage in self.seconds:
            return self.seconds[stage]
        devices = 1 if self.on_gpu else threads
        return executed_flops / (self.flops.get(stage, self.default) * devices)

    def source(self) -> str:
        """Say where the estimates come from."""
        rate = f"{self.default / 1e9:,.0f} GFLOP/s a {'GPU' if self.on_gpu else 'core'}"
        if not self.measured:
            return f"a default of {rate}: nothing was measured in this store yet"
        return f"stages measured in this store ({', '.join(self.measured)}), else {rate}"


def pace(store: Store) -> Pace:
    """Return this machine's pace, from the finished stages of the store where there are any."""
    settled = numerics.stored(store) or numerics.detect()
    on_gpu = settled.device == "cuda"
    default = DEFAULT_GPU_FLOPS if on_gpu else DEFAULT_FLOPS[settled.precision]
    work: dict[str, list[tuple[float, float]]] = {}
    walls: dict[str, list[float]] = {}
    for key in store.done_keys():
        stage, folder = key.rpartition("-")[0], store.stage(key)
        if (folder / IMPORTED).is_file():  # another machine's times
            continue
        with intact(folder):
            if stage in TRAINING:
                spent = ledger.read(folder)
                work.setdefault(stage, []).append((spent.executed_flops, spent.device_seconds))
            else:
                walls.setdefault(stage, []).append(read_json(folder / "manifest.json")["wall_s"])
    flops = {
        stage: sum(done for done, _ in rows) / max(sum(seconds for _, seconds in rows), 1e-9)
        for stage, rows in work.items()
    }
    seconds = {stage: sum(rows) / len(rows) for stage, rows in walls.items()}
    return Pace(
        flops=flops,
        seconds={**DEFAULT_SECONDS, **seconds},
        default=sum(flops.values()) / len(flops) if flops else default,
        on_gpu=on_gpu,
        measured=tuple(stage for stage in (*TRAINING, *walls) if stage in flops | seconds),
    )


@dataclass(frozen=True)
class Job:
    """Hold one stage for `makespan`; `needs` are indices of earlier jobs."""

    seconds: float
    threads: int
    needs: Sequence[int]


def makespan(jobs: Sequence[Job], cores: int) -> float:
    """Return when the last job ends, if each starts as soon as its inputs and cores allow."""
    end: dict[int, float] = {}
    running: list[tuple[float, int]] = []
    waiting = list(range(len(jobs)))
    free, now = cores, 0.0
    while waiting or running:
        for index in list(waiting):
            job = jobs[index]
            threads = min(job.threads, cores)
            if threads <= free and all(need in end for need in job.needs):
                waiting.remove(index)
                free -= threads
                heapq.heappush(running, (now + job.seconds, index))
        now, index = heapq.heappop(running)
        end[index] = now
        free += min(jobs[index].threads, cores)
    return now
