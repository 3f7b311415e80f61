"""Ranges of a model's tensors on a user's data, found in one streaming pass."""
