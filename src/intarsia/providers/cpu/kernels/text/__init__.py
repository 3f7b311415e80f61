"""Numbers as text, n-grams."""
