"""Run an ablation: its graph of stages, the workers that run them, and the index that is left."""
