"""Text: from named sources to documents, splits, tokens and batches.

- `sources`: read where text comes from, as a stream of (name, text).
- `corpus`: clean it, take what is distinct, hold some out; one file a domain and split.
- `tokens`: encode a corpus; serve training batches and held-out windows.
- `order`: put a domain's documents beside those most like them.

`arrays.py` (arrays on disk) and `pool.py` (processes) serve all four.
"""
