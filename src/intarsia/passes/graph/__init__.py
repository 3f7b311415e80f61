"""Transforms of whole graphs."""
