"""What an execution provider implements, and what it is given."""
