"""From dense models to mixtures, and what is proved of them at step 0.

`origins.py` is the recipe, one row a tensor, each paper with its section; `coverage.py` its law,
`execute.py` what applies it. `receipt.py` collects the proofs of `proofs_*.py`, which try a copy of
the model that `probe.py` makes.
"""
