"""The ways a session's run can go behind the model's native calls, in the order in which they are tried (`ordered.PATHS`)."""
