"""Graph to groups, groups to steps and segments."""
