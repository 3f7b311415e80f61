"""Matrix products by weights of 4 or 8 bits in blocks."""
