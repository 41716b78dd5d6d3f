"""A report's numbers as pandas data frames, for notebooks and for questions of one's own."""

from pathlib import Path

import numpy as np
import pandas as pd

from bam_lab.report.evidence import Cell, read_results


def cells(results: Path) -> pd.DataFrame:
    """Return one row a model, replicate and held-out domain of a report.

    Args:
        results: the `results.json` beside the report, or a committed one.

    Returns:
        columns role, name, replicate, domain, nll (nats a token), perplexity, bits_per_byte,
        tokens, bytes, runs and missing; a missing number is NaN, and `missing` says why.

    Raises:
        InputError: the file cannot be read, or is not a report's results.
    """
    rows = [cell.model_dump() for cell in read_results(results).cells]
    frame = pd.DataFrame(rows, columns=list(Cell.model_fields))
    frame = frame.astype({"nll": float, "bits_per_byte": float})
    frame.insert(list(frame.columns).index("nll") + 1, "perplexity", np.exp(frame["nll"]))
    return frame
