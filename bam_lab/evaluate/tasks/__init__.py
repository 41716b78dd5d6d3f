"""Tasks of our own: their documents, built where they are asked, and how lm-eval is to ask them.

- `passages.py` (held-out text), `questions.py` and `problems.py` (files of packages) and
  `exercises.py` (generators) are pure functions from content to documents; `build.py` reads it.
- `documents.py` says what a document is, and refuses those that would make a score meaningless.
- `config.py` makes a task of lm-evaluation-harness of them; `scoring.py` holds what that lacks.
- `available.py` says what of a suite is not on this machine, and which command brings it.
"""
