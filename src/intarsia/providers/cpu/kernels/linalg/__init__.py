"""CDist, Det, Inverse."""
