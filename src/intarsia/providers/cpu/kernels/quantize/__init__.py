"""DynamicQuantizeLinear, and tables of 256 entries."""
