"""Graphs as they are: values, nodes, constants, sizes that may be symbolic; loading, saving, checking, printing."""
