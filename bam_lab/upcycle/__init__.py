"""From dense models to mixtures: a table of origins, an executor, and the step-0 receipt."""
