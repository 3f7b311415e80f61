"""Structured control flow over the IR builder."""
