"""Dense convolution."""
