"""The C-like languages: WGSL, CUDA C, HIP C, OpenCL C."""
