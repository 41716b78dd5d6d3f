"""Run a graph of stages on this machine, together with any other program on the same store.

Every stage is taken by its lease, so two programs never do one twice. Ready stages go by the
longest path behind them, weighted by threads against the cores. A failed stage takes its dependents
with it ("missing because ..."); the rest goes on.
"""

import queue
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bam_lab.errors import EXIT_STAGE_FAILED, InputError
from bam_lab.record.lease import BEAT_SECONDS, Lease, acquire, holder
from bam_lab.record.manifest import cores
from bam_lab.record.store import Store
from bam_lab.run.outcome import Failure, GraphRun, Settings, State, Watcher
from bam_lab.run.pool import Worker
from bam_lab.run.stage import Graph, Stage

POLL_SECONDS = 0.5
STOP_SECONDS = 20.0


@dataclass
class _Running:
    stage: Stage
    lease: Lease
    worker: Worker


def unfinished(graph: Graph, store: Store, whole: bool = False) -> list[Stage]:
    """Return the stages to do, inputs first.

    Those that are not done; and those that were imported without the weights or text which one of
    them needs. Whatever else was imported is trusted, unless all is wanted `whole`.
    """
    left: set[str] = set()
    needed = set(graph.stages) if whole else set()
    for stage in reversed(list(graph.stages.values())):  # what needs a stage comes before it
        here = store.is_whole if stage.fingerprint in needed else store.is_done
        if not here(stage.key):
            left.add(stage.fingerprint)
            needed.update(stage.inputs.values())
    return [stage for fingerprint, stage in graph.stages.items() if fingerprint in left]


def run_graph(graph: Graph, store: Store, settings: Settings, watcher: Watcher) -> GraphRun:
    """Run every stage that is not done.

    Raises:
        KeyboardInterrupt: the user stopped; checkpoints are kept.
    """
    return _Scheduler(graph, store, settings, watcher).run()


class _Scheduler:
    def __init__(self, graph: Graph, store: Store, settings: Settings, watcher: Watcher):
        self.graph, self.store, self.settings, self.watcher = graph, store, settings, watcher
        self.started = time.time()
        self.cores = cores()
        self.states: dict[str, State] = {}
        self.failures: dict[str, Failure] = {}
        self.running: dict[int, _Running] = {}
        self.idle: list[Worker] = []
        self.inbox: queue.Queue[tuple[int, dict[str, Any]]] = queue.Queue()
        self.count = 0
        self.finished = 0
        self.last_beat = time.monotonic()
        self.behind = _longest_paths(graph)

    def run(self) -> GraphRun:
        left = {
            stage.fingerprint for stage in unfinished(self.graph, self.store, self.settings.whole)
        }
        for fingerprint, stage in self.graph.stages.items():
            self._set(stage, "waiting" if fingerprint in left else "done")
        try:
            while any(s in ("waiting", "running", "elsewhere") for s in self.states.values()):
                self._fail_dependents()
                self._look_elsewhere()
                self._start_ready()
                self._hear()
                self._beat()
        except KeyboardInterrupt:
            self._stop()
            raise
        finally:
            self._close()
        return GraphRun(self.finished, self.failures)

    def _set(self, stage: Stage, state: State, reason: str = "") -> None:
        if self.states.get(stage.fingerprint) != state:
            self.states[stage.fingerprint] = state
            self.watcher.state(stage, state, reason)

    def _set_failed(self, stage: Stage, failure: Failure) -> None:
        self.failures[stage.fingerprint] = failure
        self._set(stage, "missing" if failure.missing else "failed", failure.reason)

    def _in(self, *states: State) -> list[Stage]:
        return [s for s in self.graph.stages.values() if self.states[s.fingerprint] in states]

    def _fail_dependents(self) -> None:
        # Inputs stand before what needs them, so one pass reaches all.
        for stage in self._in("waiting", "elsewhere"):
            for need in self.graph.needs(stage):
                failure = self.failures.get(need.fingerprint)
                if failure is not None:
                    reason = failure.reason
                    if not failure.missing:
                        reason = f"because {need.label} failed: {reason}"
                    self._set_failed(stage, Failure(reason, missing=True))
                    break

    def _look_elsewhere(self) -> None:
        """See what other programs finished, failed or gave up."""
        for stage in self._in("elsewhere"):
            if self.store.is_whole(stage.key):
                self._set(stage, "done")
            elif (failure := self._failed_meanwhile(stage)) is not None:
                self._set_failed(stage, failure)
            elif holder(self.store, stage.key) is None:
                self._set(stage, "waiting")

    def _failed_meanwhile(self, stage: Stage) -> Failure | None:
        """Return how the stage failed in another program since this one started."""
        found = self.store.failure(stage.key)
        if found is None or found["time"] < self.started:
            return None
        return Failure(found["reason"], exit_code=found["exit_code"])

    def _start_ready(self) -> None:
        ready = [
            stage
            for stage in self._in("waiting")
            if all(self.states[n.fingerprint] == "done" for n in self.graph.needs(stage))
        ]
        for stage in sorted(ready, key=lambda s: -self.behind[s.fingerprint]):
            if not self._fits(stage):
                # A wide stage waits for cores rather than being overtaken for ever.
                break
            self._start(stage)

    def _fits(self, stage: Stage) -> bool:
        if not self.running:
            return True
        if stage.alone or any(running.stage.alone for running in self.running.values()):
            return False
        limit = self.settings.workers
        if limit is not None and len(self.running) >= limit:
            return False
        taken = sum(running.stage.threads for running in self.running.values())
        return taken + stage.threads <= self.cores

    def _start(self, stage: Stage) -> None:
        lease = acquire(self.store, stage.key)
        if lease is None:
            who = holder(self.store, stage.key) or "another process"
            self._set(stage, "elsewhere", f"{who} is at it")
            return
        if self.store.is_whole(stage.key):  # Published between our look and our lease.
            lease.release()
            self._set(stage, "done")
            return
        if (failure := self._failed_meanwhile(stage)) is not None:
            lease.release()
            self._set_failed(stage, failure)
            return
        self.store.clear_failure(stage.key)
        worker = self._worker(stage.threads)
        lease.add_process(worker.process.pid)
        self.running[worker.number] = _Running(stage, lease, worker)
        worker.send(self._request(stage))
        self._set(stage, "running")

    def _worker(self, threads: int) -> Worker:
        """Reuse an idle worker of as many threads, else start one."""
        for worker in self.idle:
            if worker.threads == threads and worker.process.poll() is None:
                self.idle.remove(worker)
                return worker
        while self.idle and len(self.idle) + len(self.running) >= self.cores:
            self.idle.pop(0).close()  # It has another number of threads; give its memory back.
        self.count += 1
        logs = self.store.root / "logs"
        return Worker(self.count, threads, self.settings.command, logs, self.inbox)

    def _request(self, stage: Stage) -> dict[str, Any]:
        inputs = {
            role: str(self.store.stage(self.graph.stages[fingerprint].key).absolute())
            for role, fingerprint in stage.inputs.items()
        }
        return {
            "do": "run",
            "spec_json": stage.as_spec_json(),
            "inputs": inputs,
            "settings": stage.settings,
            "threads": stage.threads,
            "work": str(self.store.open_work(stage.key).absolute()),
            "cache": str(self.store.cache.absolute()),
            "numerics": vars(self.settings.numerics),
        }

    def _hear(self) -> None:
        """Wait a little for messages, and take all that are there."""
        wait = POLL_SECONDS
        while True:
            try:
                number, message = self.inbox.get(wait > 0, wait or None)
            except queue.Empty:  # all taken, or none came: no error
                return
            self._take(number, message)
            wait = 0.0

    def _take(self, number: int, message: dict[str, Any]) -> None:
        running = self.running.get(number)
        if running is None:
            return
        stage = running.stage
        match message["event"]:
            case "progress":
                self.watcher.progress(stage, message)
            case "done":
                self._finish(running)
            case "failed":
                self._fail(running, {k: v for k, v in message.items() if k != "event"})
            case "died":
                reason = _death(message["code"], running.worker.log)
                self._fail(running, {"reason": reason}, reuse=False)
            case "stopped":
                self._free(running)
                self._set(stage, "waiting")

    def _finish(self, running: _Running) -> None:
        if running.lease.is_mine():
            try:
                self.store.publish(running.stage.key)
            except InputError as error:
                self._fail(running, {"reason": str(error), "exit_code": error.exit_code})
                return
            self.finished += 1
            self._set(running.stage, "done")
        else:  # This machine slept, and another one took the stage over.
            self._set(running.stage, "elsewhere")
        self._free(running)

    def _fail(self, running: _Running, message: dict[str, Any], reuse: bool = True) -> None:
        stage = running.stage
        failure = Failure(message["reason"], exit_code=message.get("exit_code", EXIT_STAGE_FAILED))
        if running.lease.is_mine():
            found = {"label": stage.label, **message, "exit_code": failure.exit_code}
            self.store.write_failure(stage.key, found)
        self._free(running, reuse)
        self._set_failed(stage, failure)

    def _free(self, running: _Running, reuse: bool = True) -> None:
        del self.running[running.worker.number]
        running.lease.release()
        if reuse:
            self.idle.append(running.worker)
        else:
            running.worker.close()

    def _beat(self) -> None:
        if time.monotonic() - self.last_beat > BEAT_SECONDS:
            self.last_beat = time.monotonic()
            for running in self.running.values():
                running.lease.beat()

    def _stop(self) -> None:
        """Ask the running stages to checkpoint and stop; wait for them, but not for ever."""
        for running in self.running.values():
            running.worker.send({"do": "stop"})
        until = time.monotonic() + STOP_SECONDS
        while self.running and time.monotonic() < until:
            self._hear()

    def _close(self) -> None:
        for running in list(self.running.values()):
            running.worker.close()
            running.lease.release()
        for worker in self.idle:
            worker.close()


def _longest_paths(graph: Graph) -> dict[str, float]:
    """Return, for every stage, the seconds of the longest path that starts with it."""
    behind = {fingerprint: stage.seconds for fingerprint, stage in graph.stages.items()}
    for stage in reversed(list(graph.stages.values())):
        for need in graph.needs(stage):
            path = need.seconds + behind[stage.fingerprint]
            behind[need.fingerprint] = max(behind[need.fingerprint], path)
    return behind


def _death(code: int, log: Path) -> str:
    if code == -9:
        return "its worker process was killed; most often memory ran out"
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"its worker process ended with {how}; see {log}"
