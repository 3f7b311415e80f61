"""Kernel families of the CPU: which nodes each takes, its steps, and the text of its kernels."""
