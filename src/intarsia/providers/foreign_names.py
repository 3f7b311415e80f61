"""Providers of other runtimes that users name, in those runtimes' order of priority, and other spellings of names."""

from __future__ import annotations

KNOWN_ELSEWHERE: dict[str, str] = {
    "NvTensorRTRTXExecutionProvider": "TensorRT for RTX on NVIDIA GPUs",
    "TensorrtExecutionProvider": "TensorRT on NVIDIA GPUs",
    "CUDAExecutionProvider": "NVIDIA GPUs through CUDA",
    "MIGraphXExecutionProvider": "AMD GPUs through MIGraphX",
    "ROCMExecutionProvider": "AMD GPUs through ROCm",
    "OpenVINOExecutionProvider": "Intel CPUs, GPUs and NPUs through OpenVINO",
    "DnnlExecutionProvider": "Intel CPUs through oneDNN",
    "TvmExecutionProvider": "Apache TVM",
    "VitisAIExecutionProvider": "AMD adaptive SoCs and Ryzen AI through Vitis AI",
    "QNNExecutionProvider": "Qualcomm NPUs",
    "NnapiExecutionProvider": "Android's Neural Networks API",
    "VSINPUExecutionProvider": "VeriSilicon NPUs",
    "JsExecutionProvider": "browsers through JavaScript",
    "CoreMLExecutionProvider": "Apple's CoreML",
    "ArmNNExecutionProvider": "Arm CPUs and GPUs through ArmNN",
    "ACLExecutionProvider": "Arm CPUs through the Arm Compute Library",
    "DmlExecutionProvider": "Windows GPUs through DirectML",
    "RknpuExecutionProvider": "Rockchip NPUs",
    "WebNNExecutionProvider": "browsers through WebNN",
    "WebGpuExecutionProvider": "GPUs through WebGPU (Vulkan, Metal, Direct3D 12)",
    "XnnpackExecutionProvider": "XNNPACK",
    "CANNExecutionProvider": "Huawei Ascend NPUs",
    "AzureExecutionProvider": "models served by Azure",
}

ALIASES: dict[str, str] = {
    "AclExecutionProvider": "ACLExecutionProvider",
    "TensorRTExecutionProvider": "TensorrtExecutionProvider",
    "DirectMLExecutionProvider": "DmlExecutionProvider",
    "NNAPIExecutionProvider": "NnapiExecutionProvider",
    "ROCmExecutionProvider": "ROCMExecutionProvider",
    "CudaExecutionProvider": "CUDAExecutionProvider",
    "CpuExecutionProvider": "CPUExecutionProvider",
    "NumPyExecutionProvider": "ReferenceExecutionProvider",
}
"""Other spellings in use -> the name."""
