"""Loops whose sizes change."""
