"""Native code that binds steps to sizes."""
