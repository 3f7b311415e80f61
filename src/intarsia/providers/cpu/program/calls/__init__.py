"""The ways a run can go, from the native fast call to host steps."""
