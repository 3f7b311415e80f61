"""Facts about values that rules ask for."""
