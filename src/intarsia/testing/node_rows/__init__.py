"""Rows of `node_table`, by families of operators."""
