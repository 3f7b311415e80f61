"""Steps as data, bound to sizes: buffers, arguments, micro-batches."""
