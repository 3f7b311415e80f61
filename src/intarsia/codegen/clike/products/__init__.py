"""Products of matrices and what is made of them, in C-like languages: tiles, tensor cores, bytes, few bits, Winograd."""
