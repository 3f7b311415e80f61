"""Providers that print kernels for a device: what they have in common, whatever the device."""
