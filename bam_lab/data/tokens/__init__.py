"""Encode a corpus and serve it: training batches, held-out windows, statistics."""
