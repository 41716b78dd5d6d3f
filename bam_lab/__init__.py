"""BAM Lab: compute-matched ablations of upcycled mixture-of-experts language models."""

__version__ = "0.1.0"
