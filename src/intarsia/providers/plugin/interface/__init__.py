"""onnxruntime's interface for plugins as the host fills it: tables, handles, statuses, what plugins may ask about a session."""
