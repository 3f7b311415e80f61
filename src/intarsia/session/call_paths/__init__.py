"""The ways a session's run can go behind the model's fast calls, in the order in which they are tried (`ordered.PATHS`)."""
