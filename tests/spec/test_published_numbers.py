"""The papers' numbers, derived anew from each other; where they disagree, a note says so."""

import math

import pytest

from bam_lab import resources
from bam_lab.spec.published import PublishedTable
from bam_lab.spec.reader import read

PATHS = sorted(resources.folder("published").glob("*.yaml"))
TABLES = {path.stem: read(path, PublishedTable) for path in PATHS}
DOMAINS = ("general", "code", "law", "math")
GROUPS = {
    "math": ("gsm8k", "math"),
    "code": ("humaneval", "mbpp"),
    "knowledge": ("nq", "tqa"),
    "reasoning": ("arc_easy", "arc_challenge", "winogrande", "siqa", "piqa"),
    "mmlu": ("mmlu",),
    "average": tuple(TABLES["btx-table-8"].columns),
}
LORY_GROUPS = {
    "commonsense": ("piqa", "siqa", "boolq", "hellaswag", "winogrande"),
    "reading": ("race_middle", "race_high", "arc_easy", "arc_challenge"),
    "closed_book": ("nq", "tqa"),
    "classification": ("ag_news", "amazon", "sst2", "yelp", "fever", "mrpc"),
}
# (table, arm, match, column) of every printed mean that is not the rounded mean of its columns.
WRONG_MEANS = {
    ("bam-table-3", "kv-experts", "tokens", "average"),
    ("btx-table-5", "no-balance", "any", "average"),
    ("lory-table-1", "dense", "tokens", "average"),
    ("lory-table-1-7b", "dense", "tokens", "average"),
    ("lory-table-6", "lory-8-re-routed", "any", "average"),
    ("lory-table-6", "lory-16", "any", "average"),
}


def row(name, arm, match="any"):
    return next(r for r in TABLES[name].rows if (r.arm, r.match) == (arm, match))


def values(name, arm, match="any"):
    return row(name, arm, match).values


def mean(numbers):
    numbers = list(numbers)
    return math.fsum(numbers) / len(numbers)


def step(table, key):
    """Return half of the last printed decimal of a column."""
    texts = [f"{r.values[key]:.10g}" for r in table.rows if key in r.values]
    return 0.5 * 10.0 ** -max(len(text.partition(".")[2]) for text in texts)


def wrong_means():
    for name, table in TABLES.items():
        for key, column in table.columns.items():
            for printed in table.rows if column.mean_of else ():
                derived = mean(printed.values[part] for part in column.mean_of)
                if abs(derived - printed.values[key]) > step(table, key) + 1e-9:
                    yield (name, printed.arm, printed.match, key), derived


def test_printed_means_come_out_but_for_the_known_slips():
    assert {cell for cell, _ in wrong_means()} == WRONG_MEANS
    checked = [name for name, t in TABLES.items() if any(c.mean_of for c in t.columns.values())]
    assert len(checked) == 9  # all tables with an average of their own columns


def test_every_slip_of_a_mean_has_a_note_with_the_right_one():
    for (name, arm, match, key), derived in wrong_means():
        table, digits = TABLES[name], 2
        assert f"{derived:.{digits}f}" in table.note(row(name, arm, match), key)


def test_bam_table_2_leaves_the_general_text_out_of_its_average():
    averages = [mean(r.values[d] for d in DOMAINS) for r in TABLES["bam-table-2"].rows]
    for printed, average in zip(TABLES["bam-table-2"].rows, averages, strict=True):
        assert abs(printed.values["average"] - average) > 0.5
        assert TABLES["bam-table-2"].note(printed, "average")
    said = ", ".join(f"{average:.2f}" for average in averages)
    assert said in TABLES["bam-table-2"].notes[0]


def test_bam_tables_that_print_one_run_differ_by_what_their_notes_say():
    for arm, twin in (("bam-table-4", "bam"), ("bam-table-5", "bam")):
        one, other = values("bam-table-1", "kv-experts", "tokens"), values(arm, twin, "tokens")
        unequal = {d for d in DOMAINS if one[d] != other[d]}
        assert unequal == {"code", "general"}
        for domain in unequal:
            assert str(one[domain]) in TABLES[arm].note(row(arm, twin, "tokens"), domain)
    soft, shared = (
        values("bam-table-6", "soft", "flops"),
        values("bam-table-1", "kv-sharing", "flops"),
    )
    for key in (*DOMAINS, "average"):
        note = TABLES["bam-table-6"].note(row("bam-table-6", "soft", "flops"), key)
        assert bool(note) == (soft[key] != shared[key])
        assert soft[key] == pytest.approx(shared[key], abs=0.0101)


def test_rows_that_two_tables_share_are_equal():
    for key in (*DOMAINS, "average"):
        assert values("bam-table-6", "btx", "flops")[key] == values("bam-table-1", "btx")[key]
    for key in DOMAINS:
        assert values("bam-table-4", "btx-4", "tokens")[key] == values("bam-table-1", "btx")[key]
    for key, number in values("btx-table-1", "seed-model").items():
        assert values("btx-table-8", "seed-model")[key] == number
    for arm, twin in (("lory", "lory-8"), ("dense", "dense")):
        assert values("lory-table-2", arm, "tokens") == values("lory-figure-2", twin, "tokens")
    for experts in (8, 16):
        prompt = values("lory-table-6", f"lory-{experts}")
        whole = values("lory-table-1-1.5b", f"lory-{experts}", "tokens")
        assert all(whole[key] == prompt[key] for key in prompt.keys() - {"average"})
    no_balance = values("btx-table-5", "no-balance")["average"]
    assert values("btx-table-4", "top-2")["tokens_10b"] == no_balance


def test_bam_table_7_totals_follow_from_their_parts():
    for printed in TABLES["bam-table-7"].rows:
        routers = 1 if printed.arm.startswith("btx") else 2
        parts = printed.values["attention"] + printed.values["ffn"]
        assert printed.values["flops"] == parts + routers * 2 * printed.values["experts"] * 1024


def test_bam_table_9_totals_follow_from_their_parts_but_for_the_two_slips():
    parts = {r.arm: int(r.values["parameters"]) for r in TABLES["bam-table-9-parts"].rows}
    outside = parts["embedding-in"] + parts["embedding-out"] + parts["layernorm-final"]

    def total(attention, experts, routers):
        ffn = experts * (parts["ffn-exp"] + parts["ffn-red"])
        return outside + 6 * (parts["layernorm"] + attention + ffn + routers * parts["router"])

    plain = parts["attn-out"] + parts["qkv"]
    every = parts["attn-out-bam"] + parts["qkv-bam"]
    shared = parts["attn-out-bam"] + parts["qkv-kv-sharing"]
    keys_and_values = 2 * 1024**2
    expected = {
        ("dense", "total"): total(plain, 1, 0),
        ("dense", "active"): total(plain, 1, 0),
        ("btx-4", "total"): total(plain, 4, 1),
        ("btx-4", "active"): total(plain, 1, 1),
        ("btx-6-top-3", "active"): total(plain, 3, 1),
        ("kv-experts", "total"): total(every, 4, 2),
        ("kv-experts", "active"): total(every, 1, 1),
        ("kv-sharing", "total"): total(shared + keys_and_values, 4, 2),
        ("kv-sharing", "active"): total(shared, 1, 1),
    }
    for (arm, key), number in expected.items():
        printed = values("bam-table-9", arm)[key]
        assert printed == number, (arm, key)
    six = outside + 6 * (parts["layernorm"] + plain + 6 * 6291456 + 6 * 1024)
    note = TABLES["bam-table-9"].note(row("bam-table-9", "btx-6-top-3"), "total")
    assert values("bam-table-9", "btx-6-top-3")["total"] != six and f"{six:,}" in note
    note = TABLES["bam-table-9"].note(row("bam-table-9", "kv-sharing"), "active")
    assert f"{total(shared + keys_and_values, 1, 1):,}" in note


def test_bam_latency_ratios_are_those_of_the_notes():
    base = values("bam-latency", "btx")["latency"]
    for arm in ("kv-experts", "kv-sharing"):
        ratio = values("bam-latency", arm)["latency"] / base
        assert f"{ratio:.2f} times" in TABLES["bam-latency"].note(
            row("bam-latency", arm), "latency"
        )


def test_btx_aggregates_are_the_means_of_the_tasks():
    wrong = set()
    for printed in TABLES["btx-table-2"].rows:
        tasks = values("btx-table-8", printed.arm, printed.match)
        for group, parts in GROUPS.items():
            derived = mean(tasks[part] for part in parts)
            if abs(derived - printed.values[group]) > 0.05 + 1e-9:
                wrong.add((printed.arm, printed.match, group))
                assert f"{derived:.2f}" in TABLES["btx-table-2"].note(printed, group)
    assert wrong == {("btx", "any", "reasoning")}


def test_btx_cost():
    btx, upcycled = (values("btx-table-3", arm, "flops") for arm in ("btx", "sparse-upcycling"))
    assert btx["tokens"] == 201 + 210 + 42 + 80
    rate = [row["tokens"] / row["gpu_days"] for row in (btx, upcycled)]
    assert [f"{r:.3f}" for r in rate] == ["0.576", "0.250"]
    assert rate[0] / rate[1] == pytest.approx(2.3, abs=0.05)
    assert f"{upcycled['gpu_days'] / btx['gpu_days'] - 1:.1%}" == "8.7%"
    shared = ("btx", "any"), ("sparse-upcycling", "flops")
    for (arm, match), here in zip(shared, (btx, upcycled), strict=True):
        assert values("btx-table-2", arm, match).items() <= here.items()


def test_btx_mixes_do_not_sum_to_a_hundred():
    sums = {r.arm: math.fsum(r.values.values()) for r in TABLES["btx-table-7"].rows}
    assert sums == pytest.approx({"math-expert": 102.98, "code-expert": 99.01, "wiki-expert": 100})
    for printed in TABLES["btx-table-7"].rows:
        off = abs(sums[printed.arm] - 100) > 0.005
        assert (f"{sums[printed.arm]:.2f}" in printed.note) == off


def test_lory_headline_gains_and_where_they_do_not_come_out():
    dense, lory = (values("lory-table-1", arm, "tokens") for arm in ("dense", "lory-32"))
    printed = row("lory-gains", "lory-32", "tokens")
    wrong = set()
    for group, tasks in LORY_GROUPS.items():
        derived = mean(lory[task] - dense[task] for task in tasks)
        if abs(derived - printed.values[group]) > 0.0501:
            wrong.add(group)
            assert f"{derived:.3g}" in TABLES["lory-gains"].note(printed, group)
    assert wrong == {"closed_book", "classification"}
    middle = [values("lory-table-1-1.5b", arm, "tokens") for arm in ("dense", "lory-32")]
    tasks = LORY_GROUPS["classification"]
    assert mean(middle[1][t] - middle[0][t] for t in tasks) == pytest.approx(11.1, abs=0.05)
    books = [values("lory-figure-2", arm, "tokens")["books"] for arm in ("dense", "lory-32")]
    assert 100 * (books[1] / books[0] - 1) == pytest.approx(printed.values["books"], abs=0.05)


def test_lory_gain_at_the_middle_size_is_two_tasks():
    dense, lory = (values("lory-table-1-1.5b", arm, "tokens") for arm in ("dense", "lory-32"))
    gains = {task: lory[task] - dense[task] for task in dense if task != "average"}
    assert mean(gains.values()) == pytest.approx(4.6, abs=0.05)
    rest = [gain for task, gain in gains.items() if task not in ("amazon", "yelp")]
    assert mean(rest) == pytest.approx(0.8, abs=0.05)


def test_lory_throughput_falls_by_what_is_printed():
    table = TABLES["lory-table-3"]
    base = values("lory-table-3", "dense")["tokens"]
    for printed in table.rows[1:]:
        change = 100 * (printed.values["tokens"] / base - 1)
        assert printed.values["slowdown"] == pytest.approx(change, abs=0.0501)


def test_unverified_numbers_are_marked():
    printed = row("lory-table-1-1.5b", "lory-32", "tokens")
    marked = {key for key in printed.values if TABLES["lory-table-1-1.5b"].note(printed, key)}
    assert marked == {"nq", "tqa", "mrpc"}


def test_vision_tables_are_data_alone():
    vision = {name for name, table in TABLES.items() if table.scope == "vision"}
    assert vision == {"su-table-2", "su-table-3"}
