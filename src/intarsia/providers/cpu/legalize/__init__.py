"""Graph to graph: what the CPU has no kernel for, in terms of what it has."""
