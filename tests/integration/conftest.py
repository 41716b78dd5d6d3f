"""One uninterrupted run of the fixture, shared by the tests here."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from bam_lab.record.store import Store
from bam_lab.run.reproduce import RunOptions, RunOutcome, run_ablation
from bam_lab.spec.load import load_ablation

HERE = Path(__file__).parent
FIXTURE = HERE.parent / "fixtures" / "ablation.yaml"
HURT = (sys.executable, str(HERE / "hurt_worker.py"))


Run = Callable[[Store, RunOptions], RunOutcome]


def run_once(store: Store, options: RunOptions) -> RunOutcome:
    return run_ablation(load_ablation(str(FIXTURE)), store, 1, options, Console(quiet=True))


@pytest.fixture
def run_fixture() -> Run:
    return run_once


@pytest.fixture(autouse=True)
def _this_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE.parents[1]))


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunOutcome:
    store = Store(tmp_path_factory.mktemp("whole"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(HERE.parents[1]))
        outcome = run_once(store, RunOptions(workers=1))
    assert outcome.exit_code == 0, outcome.failures
    return outcome


@pytest.fixture
def whole_store(whole: RunOutcome) -> Store:
    assert whole.index is not None
    return Store(whole.index.parents[2])


@pytest.fixture
def hurt_options() -> RunOptions:
    return RunOptions(command=HURT, workers=1)
