"""Evaluation of trained models: functions from a model to tidy rows.

- `heldout`: the evaluate stage's own, held-out text by domain and source.
- `likelihood`, `answering`, `sharing`: nats of continuations and of texts, completions; over ranks.
- `harness`, `harness_*`: the door to lm-evaluation-harness.
- `probes/`: needles, completions by prompt length, rule and segment length, long text, drift.
- `routing`, `routing_*`: what routers did, measured the same way for every method.
- `latency`, `rounds`, `together`: measured inference, models in turn.

The stages that call them are in `run/stages_evaluate.py`, `stages_tasks.py`, `stages_probes.py` and
`stages_calibrate.py`; a spec asks for them by `evaluate:` (`spec/evaluation.py`).
"""
