"""From a loaded graph to a compiled model that runs: one function per stage."""
