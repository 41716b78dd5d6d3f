"""Encode a corpus and serve it: training batches, held-out windows, statistics.

- `tokenizer.py` and `encode.py`: text to arrays.
- `batches.py` cuts batches by `draws.py`, `datamodule.py` hands them to Lightning, `sources.py`
  counts what was read of each source.
- `heldout.py`: windows to score. `tfidf.py`: statistics of Branch-Train-Merge's posterior.
"""
