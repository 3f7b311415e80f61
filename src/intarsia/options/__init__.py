"""Declared settings and nothing else: SessionOptions, RunOptions, configuration entries, devices."""
