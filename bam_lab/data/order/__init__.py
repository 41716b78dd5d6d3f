"""Put documents in an order: which ones share a training sequence.

`reorder.py` does it by `embed.py` (or an encoder, known by `encoder.py`), `neighbours.py` and
`chain.py`.
"""
