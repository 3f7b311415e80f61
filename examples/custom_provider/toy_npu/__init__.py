"""An execution provider for an imaginary NPU: float32, a few operators, a memory of its own with a limit."""

from dataclasses import dataclass

import numpy as np

import intarsia
from intarsia.graph.dtypes import DType

NPU = intarsia.Device("npu", description="Toy NPU")


@dataclass(frozen=True)
class ToyNpuOptions:
    memory_limit: int = 1 << 30  # bytes
    max_rank: int = 4  # of every tensor


class Memory(intarsia.DataTransfer):
    """Tensors are byte strings here; on real hardware, handles of the driver, and these two methods call it."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def copy_in(self, array: np.ndarray, device: intarsia.Device) -> intarsia.DeviceTensor:
        if array.nbytes > self.limit:
            raise intarsia.OutOfMemory(f"the NPU cannot hold {array.nbytes:,} bytes (memory_limit is {self.limit:,})")
        return intarsia.DeviceTensor(DType.of(array.dtype), array.shape, device, array.tobytes())

    def copy_out(self, tensor: intarsia.DeviceTensor) -> np.ndarray:
        return np.frombuffer(tensor.handle, tensor.dtype.numpy).reshape(tensor.shape).copy()


class ToyNpuExecutionProvider(intarsia.ExecutionProvider):
    name = "ToyNpuExecutionProvider"
    Options = ToyNpuOptions

    def __init__(self, options: ToyNpuOptions | None = None) -> None:
        super().__init__(options)
        self.memory = Memory(self.options.memory_limit)
        self.kernels = intarsia.KernelRegistry()
        operators = {"MatMul": np.matmul, "Relu": lambda x: np.maximum(x, 0), "Tanh": np.tanh}
        for op_type, function in operators.items():
            self.kernels.register(op_type, self.on_npu(function), types={DType.FLOAT})
        for op_type, function in {"Add": np.add, "Mul": np.multiply}.items():  # version 7 brought NumPy's broadcasting
            self.kernels.register(op_type, self.on_npu(function), since=7, types={DType.FLOAT})

    def on_npu(self, function):
        """A kernel: the operands of a node, in the NPU's memory, to its results there."""

        def kernel(node, operands):
            return [self.memory.copy_in(function(*map(self.memory.copy_out, operands)), NPU)]

        return kernel

    @classmethod
    def devices(cls) -> list[intarsia.Device]:
        return [NPU]

    @property
    def device(self) -> intarsia.Device:
        return NPU

    def get_kernel_registry(self) -> intarsia.KernelRegistry:
        return self.kernels

    def get_data_transfer(self) -> intarsia.DataTransfer:
        return self.memory

    def supports(self, node, graph) -> intarsia.Support:
        """What the registry says, and the limit of ranks that no registry knows."""
        for kind in (graph.type_of(name) for name in (*node.inputs, *node.outputs) if name):
            if getattr(kind, "rank", None) is not None and kind.rank > self.options.max_rank:
                return intarsia.Support.no(f"{kind} has more than {self.options.max_rank} dimensions", code="rank")
        return super().supports(node, graph)
