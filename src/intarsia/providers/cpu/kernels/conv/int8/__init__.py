"""Convolution of 8-bit integers."""
