"""External checkpoints in a report: comparable where the text is the same, and never ranked."""

import json
import math
from pathlib import Path

import pytest

from bam_lab.report.blocks import arm_cells
from bam_lab.report.collect import collect
from bam_lab.report.evidence import Evidence
from bam_lab.report.external import external_table
from bam_lab.report.render import published_tables, render, render_results
from bam_lab.report.table import Row, Table
from bam_lab.report.tables import absolute_table, effects_table
from bam_lab.spec.external import External
from tests.report.fake_store import Fake, make_store

DIGEST = "ab" * 32


def external(evidence: Evidence, **changes) -> External:
    """Return a checkpoint that lost 1.1 times the baseline's nats on the same bytes."""
    scores = []
    for domain in evidence.domains:
        cell = arm_cells(evidence, evidence.baseline, domain)[0]
        nats = 1.1 * cell.nll * cell.tokens
        scores.append({"domain": domain, "nats": nats, "tokens": 7, "bytes": cell.bytes})
    told = {
        "id": "pythia-70m",
        "title": "Pythia 70M <b>",
        "checkpoint": {"source": "https://hf.co/p", "revision": "a39f36b", "sha256": DIGEST},
        "params_total": 70_426_624,
        "params_active": 70_426_624,
        "training_tokens": None,
        "corpus": evidence.corpus["digest"],
        "context": 256,
        "scored_by": "bam-lab 0.5",
        "scores": scores,
        **changes,
    }
    return External.model_validate_json(json.dumps(told))


@pytest.fixture
def evidence(evidence_of) -> Evidence:
    found = evidence_of(replicates=2)
    corpus = {**found.corpus, "digest": found.corpus.get("digest", DIGEST)}
    return found.model_copy(update={"corpus": corpus})


def with_(evidence: Evidence, *rows: External) -> Evidence:
    return evidence.model_copy(update={"external": rows})


def row(table: Table) -> Row:
    (found,) = [row for row in table.rows if row.mark == "external"]
    return found


def test_perplexity_is_a_token_of_ours_and_bits_are_of_the_same_bytes(evidence: Evidence) -> None:
    found = row(absolute_table(with_(evidence, external(evidence)), ()))
    for place, domain in enumerate(evidence.domains):
        cell = arm_cells(evidence, evidence.baseline, domain)[0]
        perplexity, bits = found.values[2 * place : 2 * place + 2]
        assert perplexity.number == pytest.approx(math.exp(1.1 * cell.nll))
        nats = 1.1 * cell.nll * cell.tokens
        assert bits.number == pytest.approx(nats / math.log(2) / cell.bytes)
    assert "not matched" in found.note


def test_they_stand_last_and_nowhere_where_arms_are_ranked(evidence: Evidence) -> None:
    both = with_(evidence, external(evidence))
    assert absolute_table(both, ()).rows[-1].mark == "external"
    assert effects_table(both, ()) == effects_table(evidence, ())
    assert "not ranked" in absolute_table(both, ()).caption
    assert "not ranked" not in absolute_table(evidence, ()).caption


def test_rows_are_as_wide_as_the_table_with_the_papers_columns(evidence: Evidence) -> None:
    table = absolute_table(with_(evidence, external(evidence)), published_tables(evidence))
    assert {len(row.values) for row in table.rows} == {len(table.columns)}
    assert len(table.columns) == 3 * len(evidence.domains)


def test_other_text_gives_reasons_and_no_numbers(evidence: Evidence) -> None:
    other = external(evidence, corpus="cd" * 32)
    found = row(absolute_table(with_(evidence, other), ()))
    assert all(value.number is None for value in found.values)
    assert all("another corpus" in value.note for value in found.values)
    scores = [score.model_dump() for score in external(evidence).scores]
    scores[1]["bytes"] += 1
    found = row(absolute_table(with_(evidence, external(evidence, scores=scores[:-1])), ()))
    assert found.values[2].number is None and "bytes of" in found.values[2].note
    assert found.values[3].number is not None  # bits per byte stand for themselves
    assert "has no score on" in found.values[-1].note


def test_what_they_are_is_told(evidence: Evidence) -> None:
    assert external_table(evidence) is None
    table = external_table(with_(evidence, external(evidence)))
    texts = [value.text for value in row(table).values]
    assert texts[:4] == ["Pythia 70M <b>", "https://hf.co/p", "a39f36b", "70.4M"]
    assert row(table).values[5].title == "its makers do not say"
    assert DIGEST in row(table).values[1].title


def test_the_whole_report_has_them_and_results_json_reads_them_back(tmp_path: Path) -> None:
    root = tmp_path / "store"
    index = make_store(root, Fake(replicates=2))
    told = json.loads(index.read_text())
    evidence = collect(root, index)
    one = external(evidence.model_copy(update={"corpus": {"digest": DIGEST}}))
    told["external"] = [one.model_dump(mode="json")]
    index.write_text(json.dumps(told))
    assert collect(root, index).external == (one,)
    made = render(root, index, tmp_path / "out")
    page = made.paths["report.html"].read_text()
    assert "External checkpoints, not matched" in page and 'tr class="external"' in page
    assert "Pythia 70M <b>" not in page and "Pythia 70M &lt;b&gt;" in page
    assert "pythia-70m" in made.paths["table.tex"].read_text()
    assert not any(effect["arm"] == "pythia-70m" for effect in made.summary["effects"])
    again = render_results(made.paths["results.json"], tmp_path / "again")
    assert again.paths["report.html"].read_bytes() == made.paths["report.html"].read_bytes()
