"""Depthwise convolution and convolution of small groups."""
