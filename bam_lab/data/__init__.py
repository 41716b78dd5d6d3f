"""Text: from named sources to documents, splits, tokens and batches."""
