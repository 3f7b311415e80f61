"""Operators that providers and passes use inside, never a model."""
