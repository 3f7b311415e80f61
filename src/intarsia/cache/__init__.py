"""Content-addressed files on disk; knows nothing of kernels."""
