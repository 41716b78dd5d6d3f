"""Evaluation of trained models: functions from a model to tidy rows.

- `heldout`: the evaluate stage's own, held-out text by domain and source.
- `likelihood`, `answering`, `sharing`: nats of continuations and of texts, completions; over ranks.
- `harness`, `harness_*`: the door to lm-evaluation-harness.
- `probes/`: needles, completions by prompt length, rule and segment length, long text, drift.
- `routing`, `routing_*`: what routers did, measured the same way for every method.
- `latency`, `rounds`, `together`: measured inference, models in turn.

`heldout` alone is called by a stage, and `rounds` by `calibrate`; the others wait for stages of
their own. Until then claims on what they measure are judged "not measured" (`spec/measures.py`).
"""
