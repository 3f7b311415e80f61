"""Numbers of few bits: scales and zero points of ranges, rounding, packing."""
