"""What is written: complete, self-contained, escaped, the same every time, and compilable."""

import csv
import io
import json
import math
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
from rich.console import Console

from bam_lab.errors import InputError
from bam_lab.report import drawing
from bam_lab.report.collect import collect
from bam_lab.report.render import NAMES, render, render_results
from bam_lab.report.tables import absolute_table, effects_table
from bam_lab.report.templates import tex
from tests.report.fake_store import ARMS, Fake, make_store

VOID = {"meta", "br", "img", "input", "link", "hr"}
LOADS = {"src", "href", "action", "data", "poster", "srcset", "xlink:href"}


class Page(HTMLParser):
    """Check that tags nest, and note what is loaded, ids, links and cells."""

    def __init__(self, text):
        super().__init__()
        self.open, self.loads, self.ids, self.cells, self.tags = [], [], [], [], set()
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        found = dict(attrs)
        self.loads += [(tag, found[name]) for name in LOADS & found.keys()]
        self.ids += [found["id"]] if "id" in found else []
        if tag == "td":
            self.cells.append(found)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def report(five, tmp_path_factory):
    root, index = five
    return render(root, index, tmp_path_factory.mktemp("out"))


def text_of(rendered, name):
    return rendered.paths[name].read_text()


def row(rendered, arm, domain, of="ours"):
    rows = rendered.summary["effects"]
    return next(r for r in rows if (r["arm"], r["domain"], r["of"]) == (arm, domain, of))


def test_everything_is_written_where_it_was_asked(report):
    assert tuple(report.paths) == NAMES
    assert all(path.is_file() for path in report.paths.values())
    assert {p.name for p in report.paths["report.html"].parent.iterdir()} == set(NAMES)


def test_default_place_is_the_store(five):
    root, index = five
    found = render(root, index).paths["report.html"]
    assert found == root / "reports" / "bam-attention-routing-nano" / "report.html"
    shutil.rmtree(root / "reports")


def test_page_is_valid_and_loads_nothing(report):
    page = Page(text_of(report, "report.html"))
    assert len(page.ids) == len(set(page.ids))
    inside = [target for _, target in page.loads]
    assert all(target.startswith("#") for target in inside)
    assert {target[1:] for target in inside} <= set(page.ids)
    assert not {"link", "img", "iframe", "object", "embed"} & page.tags
    assert "@import" not in text_of(report, "report.html")
    assert not re.search(r"url\((?!#)", text_of(report, "report.html"))


def test_page_has_all_its_sections(report):
    text = text_of(report, "report.html")
    for words in (
        "Does BAM need soft routing",
        "The paper matched TPU core-days of the mixture phase; we match model training FLOPs",
        "In place of Common Crawl stands the domain",
        "5 replicates; each redoes branches and mixture phase",
        "Match, stated and checked",
        "Ledger",
        "Proofs at step 0",
        "code expert on code, best of all dense models: holds",
        "Assumption register",
        "Router initialisation",
        "bam-lab reproduce bam-attention-routing --scale nano --replicates 5",
        "commit 0123456789ab",
        "One run an arm; no spread is printed.",
    ):
        assert words in text, words


def test_latex_caption_says_how_the_matching_differs(report):
    assert "The paper matched TPU core-days of the mixture phase" in text_of(report, "table.tex")


def test_effects_stand_beside_the_papers(report):
    assert row(report, "soft", "general")["percent"] == pytest.approx(-2.0, abs=0.15)
    assert row(report, "soft", "general", "paper")["percent"] == pytest.approx(-2.6946, abs=1e-3)
    assert row(report, "soft", "average", "paper")["percent"] == pytest.approx(-2.09, abs=0.01)
    assert row(report, "extra", "law", "paper")["percent"] is None


def test_baseline_is_first_and_unmatched_arms_last_without_bold(report):
    arms = [r["arm"] for r in report.summary["effects"]]
    assert arms[0] == "btx"
    assert arms[-1] == "extra"
    text = text_of(report, "report.html")
    assert "extra is shown but not ranked: outside the match tolerance: 1.3000" in text
    effects = text[text.index('id="effects"') : text.index('id="absolute"')]
    bold = re.findall(r"<b>([^<]*)</b>", effects)
    # `extra` has by far the lowest perplexity; soft is the best of those that may be ranked.
    assert len(bold) == 5
    assert all(value.startswith("−2.") or value.startswith("−1.9") for value in bold)


def test_why_arms_are_not_matched_is_said_only_of_those(five):
    evidence = collect(*five)
    reason = {"match": {**evidence.ablation["match"], "unmatched": "experts are whole"}}
    said = evidence.model_copy(update={"ablation": evidence.ablation | reason})
    assert "Not matched (extra): experts are whole." in effects_table(said, ()).caption
    arms = tuple(arm for arm in said.arms if arm.name != "extra")
    rest = said.model_copy(update={"arms": arms})
    assert "experts are whole" not in effects_table(rest, ()).caption


def test_dense_experts_stand_below_the_arms_where_that_is_asked(five):
    evidence = collect(*five)
    plain = absolute_table(evidence, ())
    shown = {"report": {**evidence.ablation["report"], "experts": True}}
    told = evidence.model_copy(update={"ablation": evidence.ablation | shown})
    table = absolute_table(told, ())
    assert table.rows[: len(plain.rows)] == plain.rows
    rows = table.rows[len(plain.rows) :]
    assert [row.head for row in rows] == ["code expert", "law expert", "math expert"]
    assert {row.mark for row in rows} == {"external"} and "not ranked" in table.caption
    law = [c for c in evidence.cells if (c.role, c.name, c.domain) == ("expert", "law", "law")]
    column = [column.group for column in table.columns].index("law")
    mean = sum(math.exp(cell.nll) for cell in law) / len(law)
    assert rows[1].values[column].number == pytest.approx(mean)


def test_arms_that_do_not_differ_from_the_best_share_its_bold(tmp_path):
    fake = Fake(replicates=5, sd=0.001, effects={"soft": -0.02, "top-2": -0.02})
    text = text_of(render(tmp_path, make_store(tmp_path, fake)), "table.tex")
    effects = text[: text.index("absolute")]
    heads = {
        line: line.split("&")[0].split(r"\textsuperscript")[0] for line in effects.splitlines()
    }
    lines = {head.strip(): line for line, head in heads.items() if "&" in line}
    assert lines["soft"].count(r"\textbf") == 5
    assert lines["top-2"].count(r"\textbf") >= 4
    assert lines["top-1"].count(r"\textbf") == lines["btx"].count(r"\textbf") == 0


def test_every_measured_cell_names_its_runs(report, five):
    page = Page(text_of(report, "report.html"))
    ours = [cell for cell in page.cells if "data-value" in cell and "dim" not in cell["class"]]
    named = [cell for cell in ours if "data-runs" in cell]
    assert len(named) > 100
    stages = {path.name for path in (five[0] / "stages").iterdir()}
    assert all(set(cell["data-runs"].split()) <= stages for cell in named)


def test_a_fewer_replicates_cell_and_the_failure_are_footnoted(report):
    assert row(report, "top-1", "law")["percent"] is not None
    text = text_of(report, "report.html")
    assert "4 of 5 replicates (mixture top-1 r4: the loss is NaN at step 412" in text


def test_a_missing_arm_is_dashes_with_a_reason_never_zero(tmp_path):
    fake = Fake(failed=(("top-1", 0),))
    rendered = render(tmp_path, make_store(tmp_path, fake))
    gone = row(rendered, "top-1", "law")
    assert gone["percent"] is None
    assert gone["text"] == "--"
    for name in ("report.html", "table.csv", "table.tex"):
        assert "the loss is NaN" in text_of(rendered, name)


def test_one_replicate_has_no_bold_no_spread_no_verdict(tmp_path):
    rendered = render(tmp_path, make_store(tmp_path, Fake(effects={"soft": -0.02})))
    assert r"\textbf" not in text_of(rendered, "table.tex")
    assert "±" not in row(rendered, "soft", "law")["text"]
    assert {c["verdict"] for c in rendered.summary["claims"]} == {"not judged (1 replicate)"}


def test_five_replicates_of_which_one_is_done_are_judged_as_one(tmp_path):
    undone = tuple((arm, r) for arm in ARMS for r in range(1, 5))
    fake = Fake(replicates=5, effects={"soft": -0.02}, undone=undone)
    rendered = render(tmp_path, make_store(tmp_path, fake))
    assert r"\textbf" not in text_of(rendered, "table.tex")
    assert {c["verdict"] for c in rendered.summary["claims"]} == {"not judged (1 replicate)"}
    assert "5 (fewer where noted) replicates" in rendered.summary["claims"][0]["scope"]


def test_an_empty_store_still_reports(tmp_path):
    index = make_store(tmp_path, Fake())
    shutil.rmtree(tmp_path / "stages")
    rendered = render(tmp_path, index)
    assert all(r["percent"] is None for r in rendered.summary["effects"] if r["of"] == "ours")
    assert {c["verdict"] for c in rendered.summary["claims"]} == {"not measured"}
    assert "No mixture phase has finished yet" in text_of(rendered, "report.html")


def test_same_store_same_bytes(report, five, tmp_path):
    again = render(*five, tmp_path)
    for name in NAMES:
        assert again.paths[name].read_bytes() == report.paths[name].read_bytes(), name


def test_committed_results_render_the_same_report(report, tmp_path):
    again = render_results(report.paths["results.json"], tmp_path)
    for name in NAMES:
        assert again.paths[name].read_bytes() == report.paths[name].read_bytes(), name


def test_committed_results_are_small(report):
    assert report.paths["results.json"].stat().st_size < 600_000


def test_a_wrong_results_file_is_refused(tmp_path):
    path = tmp_path / "results.json"
    path.write_text("{}")
    with pytest.raises(InputError, match=r"must be a results\.json of this"):
        render_results(path, tmp_path)
    with pytest.raises(InputError, match="must be readable"):
        render_results(tmp_path / "none.json", tmp_path)


def test_page_carries_every_number_as_json(report):
    text = text_of(report, "report.html")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    data = json.loads(found[1])
    assert data["evidence"] == json.loads(text_of(report, "results.json"))
    assert data["summary"] == json.loads(text_of(report, "verdicts.json"))


def test_csv_holds_every_cell_unrounded(report):
    rows = list(csv.DictReader(io.StringIO(text_of(report, "table.csv"))))
    assert {"effects", "absolute", "ledger", "match", "step-0"} <= {r["table"] for r in rows}
    found = next(
        r for r in rows if (r["table"], r["row"], r["group"]) == ("effects", "soft", "law")
    )
    assert float(found["value"]) == row(report, "soft", "law")["percent"]
    assert found["runs"]


def test_terminal_table_fits_80_columns(report):
    console = Console(width=80, file=io.StringIO())
    console.print(report.terminal_table)
    text = console.file.getvalue()
    assert "…" not in text
    assert re.search(r"soft\s+−\d\.\d+±\d\.\d+", text)


HOSTILE = r'</script><script>alert(1)</script> & 100% _of_ $x^2$ #1 {~} \input{secret} <|>"'


def test_hostile_text_is_text_everywhere(tmp_path):
    fake = Fake(title=HOSTILE, failure=HOSTILE, failed=(("soft", 0),), overrides=(HOSTILE,))
    rendered = render(tmp_path, make_store(tmp_path, fake))
    text = text_of(rendered, "report.html")
    page = Page(text)
    assert page.open == []
    assert "alert(1)</script>" not in text
    assert text.count("<script") == 2
    assert r"\input{secret}" not in text_of(rendered, "table.tex")


def test_overridden_runs_are_marked_and_out_of_scope(tmp_path):
    fake = Fake(replicates=3, overrides=("arms.soft.kv=per_expert",))
    rendered = render(tmp_path, make_store(tmp_path, fake))
    assert "Overridden run." in text_of(rendered, "report.html")
    assert {c["verdict"] for c in rendered.summary["claims"]} == {"out of scope"}


def test_tex_escapes_what_plain_latex_misprints():
    assert tex("a<b>c|d") == "a$<$b$>$c$|$d"
    assert tex(r"50% of $1_000 & \x {#}") == (r"50\% of \$1\_000 \& \textbackslash{}x \{\#\}")
    assert tex("naïve 漢") == "naïve ?"


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
@pytest.mark.parametrize("hostile", [False, True])
def test_latex_compiles_within_the_page(hostile, tmp_path):
    words = HOSTILE if hostile else "the loss is NaN"
    arms = {**ARMS, "top-2-renormalized": ARMS["top-2"]}
    fake = Fake(replicates=5, sd=0.01, arms=arms, failed=(("soft", 2),), failure=words)
    rendered = render(tmp_path / "store", make_store(tmp_path / "store", fake), tmp_path)
    document = r"\documentclass{article}\usepackage{booktabs}\begin{document}\input{table.tex}"
    (tmp_path / "all.tex").write_text(document + r"\end{document}")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout
    assert rendered.paths["table.tex"].is_file()


def test_a_single_arm_has_no_figure_of_changes(tmp_path):
    index = make_store(tmp_path / "store", Fake(arms={"btx": ARMS["btx"]}))
    page = render(tmp_path / "store", index, tmp_path).paths["report.html"].read_text()
    assert "change in test perplexity against" not in page


def test_without_matplotlib_figures_are_left_out_with_a_note(five, tmp_path, monkeypatch):
    monkeypatch.setattr(drawing, "available", lambda: False)
    text = text_of(render(*five, tmp_path), "report.html")
    assert "matplotlib is not installed" in text
    assert "<svg" not in text


def test_figures_are_text_and_follow_the_pages_colours(report):
    text = text_of(report, "report.html")
    assert text.count("<svg") == 2
    assert "<text" in text
    assert "currentColor" in text
    assert "#010203" not in text


def test_an_unknown_claim_is_the_users_to_mend(tmp_path):
    index = make_store(tmp_path, Fake(claims=("C1", "C99")))
    with pytest.raises(InputError, match=r"lacks C99.*It has C1, C1e"):
        render(tmp_path, index)
