"""Forms of constants as values: several nodes read one constant, each in its own form."""

from __future__ import annotations

import numpy as np
import onnx.numpy_helper
import onnx.parser
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

import intarsia
from intarsia.graph.dtypes import DType
from intarsia.graph.model import Constant
from intarsia.providers.cpu.kernels.common.lowering_options import LoweringOptions
from intarsia.providers.cpu.kernels.common.packing import Layout, Packing
from intarsia.providers.cpu.lowering.lower import _Workspace

HEAD = '<ir_version: 10, opset_import: ["" : 17]>\n'


def convolved(x: np.ndarray, w: np.ndarray, group: int = 1, dilation: int = 1) -> np.ndarray:
    """Sums over windows without a border, [N, C, H, W] by [M, C / group, kh, kw], in float64."""
    span = (dilation * (w.shape[2] - 1) + 1, dilation * (w.shape[3] - 1) + 1)
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), span, (2, 3))[..., ::dilation, ::dilation]
    n, c, h, width = windows.shape[:4]
    parts = windows.reshape(n, group, c // group, h, width, *w.shape[2:])
    filters = w.astype(np.float64).reshape(group, len(w) // group, *w.shape[1:])
    found: np.ndarray = np.einsum("ngchwij,gmcij->ngmhw", parts, filters, optimize=True)
    return found.reshape(n, len(w), h, width)


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_one_filter_in_other_groups_and_dilations(dtype: type, kernel: int) -> None:
    """What packed filters hold depends on the groups that they are for: those of one convolution are not another's."""
    rng = np.random.default_rng(3)
    forms = {"a": (1, 1), "b": (2, 1), "c": (1, 2), "d": (4, 1)}  # groups, dilation
    op, name = ("Conv", "float") if dtype is np.float32 else ("ConvInteger", "uint8")
    weights = rng.integers(-127, 128, (32, 16, kernel, kernel)).astype(np.int8 if dtype is np.uint8 else dtype)
    inputs = {f"x{n}": rng.integers(0, 256, (1, 16 * g, 20, 20)).astype(dtype) for n, (g, _) in forms.items()}
    wanted = {n: convolved(inputs[f"x{n}"], weights, *form) for n, form in forms.items()}
    result = "float" if dtype is np.float32 else "int32"
    given = ", ".join(f"{name}[{','.join(map(str, v.shape))}] {n}" for n, v in inputs.items())
    made = ", ".join(f"{result}[{','.join(map(str, v.shape))}] {n}" for n, v in wanted.items())
    nodes = "  ".join(f"{n} = {op}<group={g}, dilations=[{d}, {d}]>(x{n}, w)" for n, (g, d) in forms.items())
    model = onnx.parser.parse_model(f"{HEAD}g ({given}) => ({made}) {{ {nodes} }}")
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    session = intarsia.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for found, (n, right) in zip(session.run(None, inputs), wanted.items(), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-5 * np.abs(right).max(), err_msg=n)


def test_each_form_is_packed_once_under_a_name_of_its_own() -> None:
    workspace = _Workspace({"w": Constant.of("w", np.zeros(4, np.float32))}, LoweringOptions.of({}), {})
    packed: list[int] = []

    def add(packing: Packing) -> str:
        def make() -> np.ndarray:
            packed.append(len(packed))
            return np.full(1, packed[-1])

        return workspace.add("w", packing, make)

    forms = [
        Packing(Layout.PANELS, 16), Packing(Layout.PANELS, 32), Packing(Layout.PANELS, 16, DType.FLOAT16),
        Packing(Layout.FILTERS, 16), Packing(Layout.PANELS, 16, view=(2, True)), Packing(Layout.PANELS, 16, view="(2, True)"),
    ]  # fmt: skip
    names = [add(form) for form in forms]
    assert len(set(names)) == len(forms)  # though four of them read alike
    assert packed == [*range(len(forms))]
    assert [add(form) for form in forms] == names
    assert packed == [*range(len(forms))]
    assert [int(workspace.used[name][0]) for name in names] == packed
    assert names[0] == "w%panels16"


def test_a_form_is_a_value() -> None:
    assert Packing(Layout.WORDS, 8, view=(1,)) == Packing(Layout.WORDS, 8, view=(1,))
    with pytest.raises(TypeError, match="unhashable"):
        hash(Packing(Layout.WORDS, view=[1]))  # type: ignore[arg-type]
