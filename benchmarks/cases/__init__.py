"""Models that benchmarks time: families, and cases of one operator."""
