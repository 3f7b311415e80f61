"""The execution providers, how they are found, and what happens when one fails."""
