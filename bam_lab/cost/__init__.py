"""What a model costs: parameters, FLOPs, bytes, seconds; and the steps that make arms equal."""
