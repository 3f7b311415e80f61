"""One primitive on one element or vector, as LLVM IR."""
