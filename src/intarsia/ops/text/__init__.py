"""Strings, regular expressions, n-grams, encoded images."""
