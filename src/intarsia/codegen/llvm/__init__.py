"""LLVM IR text to callable machine code."""
