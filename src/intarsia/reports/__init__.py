"""Read-only views of a graph or a compiled model, printable."""
