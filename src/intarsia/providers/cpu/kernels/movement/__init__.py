"""Transposes, concatenation, copies that a loop carries."""
