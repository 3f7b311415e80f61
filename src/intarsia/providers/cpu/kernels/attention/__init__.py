"""Attention, softmax, caches of keys and values."""
