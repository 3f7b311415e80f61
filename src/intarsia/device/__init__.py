"""Devices with memory of their own: what a provider that prints kernels needs of one.

`gpu.Gpu` is the interface; `webgpu.WebGpu` is it by the package wgpu. Tensors there are `DeviceTensor`s whose handle is a
`gpu.Slice`.
"""
