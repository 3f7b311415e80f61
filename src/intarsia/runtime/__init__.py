"""The executor of step tables: threads, barriers, calls from a dict of arrays."""
