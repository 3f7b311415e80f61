"""Text of kernels from primitives; knows no provider and no plan."""
