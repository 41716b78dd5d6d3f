"""metrics.jsonl: appended, torn, cut."""

from pathlib import Path

from bam_lab.record import metrics


def test_torn_last_line_is_left_out_and_cut_away(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert metrics.read(path) == []
    for step in (1, 2, 3):
        metrics.append(path, {"step": step, "loss": 1.5})
    with path.open("a") as file:
        file.write('{"step": 4, "lo')
    assert [row["step"] for row in metrics.read(path)] == [1, 2, 3]
    metrics.cut(path, 2)
    assert path.read_text() == '{"step": 1, "loss": 1.5}\n{"step": 2, "loss": 1.5}\n'
    metrics.append(path, {"step": 3, "loss": float("nan")})
    assert metrics.read(path)[-1]["loss"] != metrics.read(path)[-1]["loss"]
