"""Shapes, places, conversions, random tensors, sequences."""
