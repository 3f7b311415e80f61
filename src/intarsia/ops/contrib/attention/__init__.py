"""Attention of com.microsoft: its forms, masks and caches of keys and values."""
