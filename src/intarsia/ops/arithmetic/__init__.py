"""Arithmetic, products, reductions, linear algebra, signals."""
