"""The report reads the index that `run` writes, for every shipped ablation."""

import pytest

from bam_lab.record.store import Store
from bam_lab.report.render import NAMES, render
from bam_lab.run.graph import build_graph
from bam_lab.run.index import write_index
from bam_lab.spec.load import list_ablations, load_ablation


@pytest.mark.parametrize("path", list_ablations(), ids=lambda path: path.stem)
def test_a_run_that_has_not_begun_reports_what_is_missing(path, tmp_path):
    resolved = load_ablation(str(path))
    store = Store(tmp_path)
    store.prepare()
    graph = build_graph(resolved, 2, "0" * 64)
    rendered = render(tmp_path, write_index(resolved, graph, store, 2))
    assert set(rendered.paths) == set(NAMES)
    arms = [row["arm"] for row in rendered.summary["effects"]]
    assert arms[0] == resolved.ablation.baseline
    assert set(arms) == {arm.partition("@")[0] for arm in resolved.arms}
    assert [claim["id"] for claim in rendered.summary["claims"]] == list(resolved.ablation.claims)
    text = rendered.paths["report.html"].read_text()
    assert "not run yet: corpus" in text
    place = resolved.ablation.source.place
    assert f"<dt>Source</dt><dd>{place}" in text and "Table <" not in text
    mixes = [resolved.reads(arm).mix or {} for arm in resolved.arms]
    papers = all(mix == dict.fromkeys(("general", "code", "law", "math"), 0.25) for mix in mixes)
    assert ("departs from the stated general 25%" in text) != papers
