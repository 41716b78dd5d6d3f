"""Probes: what held-out perplexity does not show, of any model that has a causal inference rule."""
