"""Tree ensembles, pairwise coupling of class probabilities."""
