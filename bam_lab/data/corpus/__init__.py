"""Turn sources into domains: clean, distinct, honestly held out, written once.

- `build.py` has the steps in order, `unit.py` what they keep on disk meanwhile.
- `piece.py`: steps that see one piece of a source, by `clean.py` and `runs.py`.
- `domain.py`: steps that see a whole domain, by `dedup.py` and `split.py`.
- `contamination.py`: what of held-out text stands in training.
- `records.py` counts what became of documents; `manifest.py` is the record that stays.
- `ngram.py`: how different the domains are. `inspect.py`: text that a user brings.
"""
