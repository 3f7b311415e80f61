"""What is compiled, cached, shared and told."""
