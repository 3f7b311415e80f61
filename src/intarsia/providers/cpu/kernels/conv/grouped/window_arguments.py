"""What kernels that slide windows over images are (`WindowSpec`), and what they (`sliding_window`) are called with."""

from __future__ import annotations

import math

from intarsia.codegen.llvm.target import Target
from intarsia.graph.dtypes import DType
from intarsia.lazy_dataclass import dataclass
from intarsia.plan.step import Address, Argument
from intarsia.providers.cpu.kernels.common.element_size import itemsize
from intarsia.providers.cpu.kernels.common.epilogue import Epilogue
from intarsia.providers.cpu.kernels.conv.window_products import ConvShape, WindowOperands
from intarsia.providers.cpu.kernels.matmul.gemm_arguments import Operand

LINE = 64  # bytes of a pixel in the ring of `depthwise_line_buffer`
PIXELS = 7
OPERATIONS = ("multiply", "max", "average")
_BLOCK_VECTORS = 8  # channels of a unit of work: 512 bytes of AVX-512 vectors
_WIDE_BLOCK_VECTORS = 32  # where these are read pixel by pixel: what is read in a row can be foreseen
_LONG_VECTOR_NBYTES = 64  # with 32 registers
FIELDS = (
    "x y weights batch depth height width channels out_depth out_height out_width pad_d pad_h pad_w "
    "low_d low_h low_w high_d high_h high_w x_pixel x_line x_plane x_image y_pixel y_line y_plane y_image blocks number lines"
).split()


@dataclass(frozen=True)
class WindowSpec:
    """Compile-time parameters of the kernel.

    Attributes:
        operation: "multiply" (depthwise convolution: sum of pixel times weight), "max" or "average".
        kernel, strides, dilations: per spatial axis, one to three of them.
        dtype: FLOAT or DOUBLE; "max" of bytes, too.
        epilogue: operands "column" (by channel), "full" or "scalar".
        x_dtype: of the input where it is not `dtype`: UINT8 or INT8, of which "multiply" subtracts a zero point
            in FLOAT (sums of such products are exact up to 2^24), or not in INT32
            (`kernels.conv.grouped.depthwise_int8_kernel`); BFLOAT16, of groups.
        filters: of "multiply", where every filter sees all channels (`kernels.conv.few_output_channels_kernel`): how many there
        are. each: of "multiply", how many neighbouring channels make a group, of which every channel of the output in it has
            a weight (`kernels.conv.grouped.small_groups_kernel`; of bytes, `kernels.conv.grouped.small_groups_int8_kernel`); a
            power of two that divides a vector.
        multiplier: of "multiply", how many neighbouring channels of the output see each one of the input
            (`kernels.conv.grouped.depthwise_kernel`); a power of two that divides a vector.
        pixels: how many neighbouring output pixels are accumulated at once.
        buffers_lines: of "multiply", whether lines of the input are copied to a line buffer
        (`kernels.conv.grouped.depthwise_line_buffer`).
    """

    operation: str
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    dtype: DType = DType.FLOAT
    epilogue: Epilogue | None = None
    x_dtype: DType | None = None
    each: int = 1
    filters: int = 0
    multiplier: int = 1
    pixels: int = PIXELS
    buffers_lines: bool = False

    def __post_init__(self) -> None:
        mixed = self.x_dtype not in (None, DType.BFLOAT16) and self.dtype.is_floating
        if self.each != 1 and (self.operation != "multiply" or mixed or self.each & (self.each - 1)):
            raise ValueError(f"groups of 2^n channels go with multiply of one type; got {self.each} and {self.operation}")
        if self.operation not in OPERATIONS:
            raise ValueError(f"operation is one of {', '.join(OPERATIONS)}; got {self.operation!r}")
        if self.epilogue and "row" in self.epilogue.kinds:
            raise ValueError("a window's epilogue takes operands of kind column, full or scalar; got 'row'")

    @property
    def is_flat(self) -> bool:
        """Whether it is a depthwise convolution of floats by windows of one line."""
        plain = self.operation == "multiply" and self.each == self.multiplier == 1 and not self.filters and not self.x_dtype
        return plain and math.prod(self.kernel[:-1]) == 1


def by_pixels(spec: WindowSpec, target: Target) -> bool:
    """Whether all channels of some pixels come before the next pixels, whose addresses are in few registers. Of 32 bytes two
    vectors share a line of the cache, which would be gone when the second reads it; and of 16 registers LLVM would spill
    those that have the distance of each pixel. Of a window of one line no other line of the output reads a pixel again, so
    that what neighbouring outputs see has to stay in the first-level cache, where distant pixels share few sets (AVX-512)."""
    return target.is_avx2 or spec.is_flat and target.vector_bytes == _LONG_VECTOR_NBYTES


def _block_vectors(spec: WindowSpec, target: Target) -> int:
    return _WIDE_BLOCK_VECTORS if by_pixels(spec, target) else _BLOCK_VECTORS


def window_args(
    spec: WindowSpec, target: Target, shape: ConvShape, data: WindowOperands, *, output: tuple[int, ...] | None = None,
    count_include_pad: bool = False,
) -> list[Argument]:  # fmt: skip
    """The kernel's arguments; of `shape`, the sizes and the pads matter (kernel, strides, dilations are the spec's).

    `output`: the spatial output sizes where they differ from `shape.output` (ceil_mode). The zero point is read where the spec
    has an `x_dtype`. For the epilogue's operands see `window_operand`.
    """
    s = shape.as_3d()
    out = (1,) * (3 - len(shape.spatial)) + (output or shape.output)
    size = itemsize(spec.dtype)
    out_size = itemsize(spec.epilogue.dtype) if spec.epilogue else size
    lanes = target.vector_bytes // size
    x_size = itemsize(spec.x_dtype or spec.dtype)
    x_pixel, y_pixel = data.x_pixel_nbytes or s.channels * x_size, data.y_pixel_nbytes or s.channels * out_size
    begins, ends = s.pads[:3], s.pads[3:]
    low = [-p for p in begins] if count_include_pad else [0, 0, 0]
    high = [n + p for n, p in zip(s.spatial, ends, strict=True)] if count_include_pad else list(s.spatial)
    args = [
        data.x, data.y, data.weights, s.batch, *s.spatial, s.channels, *out, *begins, *low, *high,
        *_strides(x_pixel, s.spatial), *_strides(y_pixel, out),
        -(-s.channels // (lanes * _block_vectors(spec, target))), data.number, 1,
    ]  # fmt: skip
    for operand in data.operands:
        args.extend(operand)
    return args


def _strides(pixel: int, sizes: tuple[int, ...]) -> tuple[int, int, int, int]:
    """Bytes between pixels, lines, planes and images."""
    line = pixel * sizes[2]
    return pixel, line, line * sizes[1], line * sizes[1] * sizes[0]


def window_operand(kind: str, dtype: DType, address: Address, channels: int, output: tuple[int, ...]) -> Operand:
    """An epilogue operand: "column" [C], "full" [N, *output, C] dense, or "scalar"."""
    if kind != "full":
        return Operand(address)
    return Operand(address, *_strides(channels * itemsize(dtype), (1,) * (3 - len(output)) + output))
