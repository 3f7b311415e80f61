"""Steps to steps."""
