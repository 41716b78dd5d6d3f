"""`plan --all`: every distinct stage once, and what sharing saves."""

import json
from pathlib import Path

import pytest

from bam_lab.cli import price as pricing
from bam_lab.cli.planning import make_plan
from bam_lab.cli.price import price
from bam_lab.errors import SpecError
from bam_lab.record import numerics
from bam_lab.record.numerics import Numerics, Precision
from bam_lab.record.store import Store
from bam_lab.spec import load as loading
from bam_lab.spec.load import load_ablation
from tests.cli.command import bam_lab

SPECS = [f"tests/fixtures/{name}.yaml" for name in ("ablation", "systems", "data")]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pricing, "cores", lambda: 2)


def test_each_distinct_stage_counts_once(store: Store) -> None:
    plans = [make_plan(load_ablation(name), store, 1, None) for name in SPECS]
    once = {row.key: row for made in plans for row in made.stages}
    every = [row for made in plans for row in made.stages]
    assert len(once) < len(every)  # they share a seed model and experts
    found = price(SPECS, store, None, 1)
    assert found.distinct == len(once) == sum(entry.new for entry in found.entries)
    assert found.training_flops == sum(row.training_flops for row in once.values())
    busy = sum(row.seconds * min(row.threads, 2) for row in once.values()) / 2
    assert found.seconds == pytest.approx(busy)
    assert sum(entry.added_seconds for entry in found.entries) == pytest.approx(busy)
    alone = sum(row.seconds * min(row.threads, 2) for row in every) / 2
    assert found.alone_seconds == pytest.approx(alone)
    assert found.saved == pytest.approx(1 - busy / alone) and 0 < found.saved < 1
    longest = max(row.seconds for row in once.values())
    assert max(busy, longest) <= found.wall_seconds <= 2 * busy
    assert [entry.stages for entry in found.entries] == [len(made.stages) for made in plans]


def test_what_is_there_twice_adds_nothing(store: Store) -> None:
    found = price([SPECS[0], SPECS[0]], store, None, 1)
    assert found.entries[1].new == 0 and found.entries[1].added_seconds == 0
    assert found.saved == pytest.approx(0.5)


def test_more_replicates_cost_more(store: Store) -> None:
    one, own = (price(SPECS[:1], store, None, count) for count in (1, None))
    assert own.entries[0].replicates == 2
    assert one.seconds < own.seconds < 2 * one.seconds


def test_what_is_done_is_not_left(store: Store) -> None:
    before = price(SPECS[:1], store, None, 1)
    assert before.done == 0 and before.wall_seconds_left == before.wall_seconds
    made = make_plan(load_ablation(SPECS[0]), store, 1, None)
    (store.stage(made.stages[0].key)).mkdir(parents=True)
    (store.stage(made.stages[0].key) / "corpus.json").write_text('{"digest": "c"}')
    (store.stage(made.stages[0].key) / "manifest.json").write_text('{"wall_s": 3.0}')
    (store.stage(made.stages[0].key) / "DONE").touch()
    after = price(SPECS[:1], store, None, 1)
    assert after.done == 1 and after.wall_seconds_left < after.wall_seconds
    assert "corpus" in after.time_from


def test_one_that_does_not_check_is_named_and_the_rest_planned(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(Path(SPECS[0]).read_text().replace("recipe: bam", "recipe: none"))
    found = price([str(bad), SPECS[1]], store, None, 1)
    assert found.entries[0].problem and found.entries[1].stages == found.distinct
    with pytest.raises(SpecError, match=r"recipe must name a file"):
        pricing.refuse_problems(found)
    fine = tmp_path / "ablation.yaml"
    monkeypatch.setattr(loading, "list_ablations", lambda: [bad, fine])
    monkeypatch.setattr(
        loading, "find_ablation", lambda name: {"bad": bad}.get(name, Path(SPECS[0]))
    )
    done = bam_lab("plan", "--all", "--store", str(store.root), columns=80)
    assert done.code == 2 and "recipe must name a file" in done.err
    assert "Not in it, since they do not check: bad." in done.out


def test_the_catalogue_for_people_and_programs(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = {Path(name).stem: Path(name) for name in SPECS}
    monkeypatch.setattr(loading, "list_ablations", lambda: list(paths.values()))
    monkeypatch.setattr(loading, "find_ablation", lambda name: paths[name])
    arguments = ("plan", "--all", "--replicates", "1", "--store", str(store.root))
    done = bam_lab(*arguments, columns=80)
    assert done.code == 0, done.err
    assert all(len(line) <= 80 for line in done.out.splitlines())
    assert "Sharing saves" in done.out and "Replicates: 1." in done.out
    read = json.loads(bam_lab(*arguments, "--json").out)
    assert [entry["id"] for entry in read["entries"]] == ["ablation", "systems", "data"]
    assert f"{read['distinct']} distinct stages" in done.out.replace("\n", " ")


@pytest.mark.parametrize(
    ("extra", "name"),
    [(["bam-perplexity"], "ID"), (["--set", "a=1"], "--set"), (["--workers", "2"], "--workers")],
)
def test_all_stands_alone(extra: list[str], name: str) -> None:
    done = bam_lab("plan", "--all", *extra)
    assert done.code == 2 and f"--all must stand without {name}, got both" in done.err


@pytest.mark.parametrize("precision", ["bf16-mixed", "float32"])
def test_the_whole_catalogue_takes_at_most_four_hours(
    precision: Precision, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One replicate of every shipped ablation, at the stated pace of two cores."""
    monkeypatch.setattr(numerics, "detect", lambda: Numerics(precision, "cpu"))
    found = price([path.stem for path in loading.list_ablations()], store, None, 1)
    assert [entry.id for entry in found.entries if entry.problem] == []
    assert found.wall_seconds <= 4 * 3600
