"""What callers give and get: arrays, OrtValue, and their conversions."""
