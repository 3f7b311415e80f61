"""Content-addressed files on disk; knows nothing of kernels. What a whole session begins from is `model.warm_start`'s."""
