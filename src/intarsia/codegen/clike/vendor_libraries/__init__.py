"""Calls of a vendor's libraries instead of printed kernels."""
