"""Small models that ask for absurd sizes: making a session takes little memory, and a run that cannot have its memory ends in
OutOfMemory, on the CPU and by the definitions. They run in a process of its own whose address space has a limit."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import intarsia as ort
from intarsia.errors import SizeTooLarge

SPACE = 5 << 30  # bytes of addresses, of which the interpreter and its threads take some
MADE_MIB = 150  # that a session may add to what the process has
PROVIDERS = ["CPUExecutionProvider", "ReferenceExecutionProvider"]
Bomb = tuple[bytes, dict[str, np.ndarray]]


def model(
    nodes: list[Any], inputs: dict[str, np.ndarray], constants: dict[str, np.ndarray] | None = None, opset: int = 21,
    output: int = TensorProto.FLOAT,
) -> Bomb:  # fmt: skip
    """Nodes whose last one computes `y`; inputs of the shapes given, and these as the feed."""
    given = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), list(x.shape)) for n, x in inputs.items()
    ]
    graph = helper.make_graph(
        nodes, "bomb", given, [helper.make_tensor_value_info("y", output, None)],
        [numpy_helper.from_array(x, n) for n, x in (constants or {}).items()],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return made.SerializeToString(), inputs


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


ONE = np.ones(1, np.float32)
IMAGE = np.ones((1, 1, 2, 2), np.float32)
node = helper.make_node
SIZED: dict[str, Callable[[int], Bomb]] = {
    **{
        f"resize {mode}": lambda n, mode=mode: model(
            [node("Resize", ["x", "", "", "s"], ["y"], mode=mode)], {"x": IMAGE}, {"s": ints(1, 1, 2, n)}
        )
        for mode in ("nearest", "linear", "cubic")
    },
    "resize of a constant": lambda n: model(
        [node("Resize", ["c", "", "", "s"], ["r"]), node("Add", ["r", "x"], ["y"])], {"x": ONE},
        {"s": ints(1, 1, n, n), "c": IMAGE},
    ),
    "resize to a size of the run": lambda n: model(
        [node("Resize", ["x", "", "", "s"], ["y"], mode="linear")], {"x": IMAGE, "s": ints(1, 1, n, n)}
    ),
    "upsample": lambda n: model(
        [node("Upsample", ["x", "s"], ["y"])], {"x": IMAGE}, {"s": np.float32([1, 1, n, n])}, opset=9
    ),
    "constant of shape": lambda n: model(
        [node("ConstantOfShape", ["s"], ["r"]), node("Add", ["r", "x"], ["y"])], {"x": ONE}, {"s": ints(n, n)}
    ),
    "constant of a run's shape": lambda n: model([node("ConstantOfShape", ["s"], ["y"])], {"s": ints(n, n)}),
    "a product of 2^64": lambda n: model([node("ConstantOfShape", ["s"], ["y"])], {"s": ints(n, 2**64 // n)}),
    "no elements": lambda n: model([node("ConstantOfShape", ["s"], ["y"])], {"s": ints(n, n, n, 0)}),
    "range": lambda n: model(
        [node("Range", ["a", "n", "d"], ["r"]), node("Add", ["r", "x"], ["y"])], {"x": ints(1)},
        {"a": np.array(0), "n": np.array(n), "d": np.array(1)}, output=TensorProto.INT64,
    ),
    "one-hot": lambda n: model(
        [node("OneHot", ["x", "n", "v"], ["y"])], {"x": ints(*range(8))}, {"n": np.array(n), "v": np.float32([0, 1])}
    ),
    "tile of a constant": lambda n: model(
        [node("Tile", ["c", "s"], ["r"]), node("Add", ["r", "x"], ["y"])], {"x": ONE}, {"s": ints(4 * n), "c": ONE}
    ),
    "pad": lambda n: model([node("Pad", ["x", "s"], ["y"])], {"x": ONE}, {"s": ints(n, n)}),
    "pad, wrapping": lambda n: model(
        [node("Pad", ["x", "s"], ["y"], mode="wrap")], {"x": np.ones(3, np.float32)}, {"s": ints(n, n)}
    ),
    "expand": lambda n: model([node("Expand", ["x", "s"], ["r"]), node("Exp", ["r"], ["y"])], {"x": ONE}, {"s": ints(n, 8)}),
    "diagonal": lambda n: model(
        [node("ConstantOfShape", ["s"], ["r"]), node("EyeLike", ["r"], ["y"])], {"s": ints(n, n)}
    ),
    "random": lambda n: model([node("RandomNormal", [], ["r"], shape=[n, 8]), node("Add", ["r", "x"], ["y"])], {"x": ONE}),
    "window": lambda n: model(
        [node("HannWindow", ["n"], ["r"]), node("Add", ["r", "x"], ["y"])], {"x": ONE}, {"n": np.array(4 * n)}
    ),
    "mel": lambda n: model(
        [node("MelWeightMatrix", ["n", "n", "r", "l", "h"], ["m"]), node("Add", ["m", "x"], ["y"])], {"x": ONE},
        {"n": np.array(n), "r": np.array(8192), "l": np.array(0, np.float32), "h": np.array(4000, np.float32)},
    ),
    "Fourier transform": lambda n: model(
        [node("DFT", ["x", "n"], ["y"])], {"x": np.ones((1, 8, 1), np.float32)}, {"n": np.array(4 * n)}
    ),
    "grid": lambda n: model(
        [node("AffineGrid", ["x", "s"], ["y"])], {"x": np.ones((1, 2, 3), np.float32)}, {"s": ints(1, 1, n, n)}
    ),
    "columns to image": lambda n: model(
        [node("Col2Im", ["x", "s", "b"], ["y"], strides=[n, 1])], {"x": np.ones((1, 4, 1), np.float32)},
        {"s": ints(n, 2), "b": ints(2, 2)},
    ),
    "unpooling": lambda n: model(
        [node("MaxUnpool", ["x", "i", "s"], ["y"], kernel_shape=[2, 2])],
        {"x": np.ones((1, 1, 1, 1), np.float32), "i": np.zeros((1, 1, 1, 1), np.int64)}, {"s": ints(1, 1, n, n)},
    ),
    "transposed convolution": lambda n: model(
        [node("ConvTranspose", ["x", "w"], ["y"], strides=[n, n])], {"x": np.ones((1, 1, 3, 3), np.float32)}, {"w": IMAGE}
    ),
    "regions": lambda n: model(
        [node("RoiAlign", ["x", "r", "i"], ["y"], output_height=n, output_width=8)], {"x": np.ones((1, 1, 4, 4), np.float32)},
        {"r": np.float32([[0, 0, 1, 1]]), "i": ints(0)},
    ),
}  # fmt: skip


def doubled(op_type: str, count: int, constant: bool, **attributes: Any) -> Bomb:
    """A value that each of `count` nodes makes twice as large."""
    chain = [node(op_type, [f"v{i}"] * 2, [f"v{i + 1}"], **attributes) for i in range(count)]
    nodes = [*chain, node("Add", [f"v{count}", "x"], ["y"])]
    return model(nodes, {"x": ONE}, {"v0": ONE}) if constant else model(nodes, {"x": ONE, "v0": ONE})


def squared(count: int) -> Bomb:
    """A vector whose length each three nodes square: the last one has a length of 2^(2^count) elements."""
    nodes = []
    for i in range(count):
        nodes += [node("Reshape", [f"v{i}", "column"], [f"c{i}"]), node("Mul", [f"v{i}", f"c{i}"], [f"m{i}"])]
        nodes += [node("Reshape", [f"m{i}", "flat"], [f"v{i + 1}"])]
    return model(
        [*nodes, node("Add", [f"v{count}", "x"], ["y"])],
        {"x": ONE},
        {"v0": np.ones(2, np.float32), "column": ints(-1, 1), "flat": ints(-1)},
    )


def bombs() -> dict[str, Bomb]:
    found = {f"{name} of 2^{power}": make(1 << power) for name, make in SIZED.items() for power in (31, 40, 60)}
    found["concatenated constants"] = doubled("Concat", 60, constant=True, axis=0)
    found["concatenated inputs"] = doubled("Concat", 60, constant=False, axis=0)
    found["squared"], found["squared forty times"] = squared(6), squared(40)
    outer = helper.make_node("Einsum", ["x"] * 6, ["y"], equation="a,b,c,d,e,f->abcdef")
    found["outer product"] = model([outer], {"x": np.ones(1000, np.float32)})
    return found


def main(provider: str) -> None:
    """Print, for each bomb, MiB that its session added, and what came of it."""
    resource.setrlimit(resource.RLIMIT_AS, (SPACE, SPACE))
    told = {}
    for name, (source, feed) in bombs().items():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        added, kind = None, "ran"
        try:
            session = ort.InferenceSession(source, providers=[provider])
            added = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
            session.run(None, feed)
        except Exception as error:  # noqa: BLE001 # which it is, is what is looked at
            own = isinstance(error, ort.IntarsiaError)
            kind = f"{'' if own else 'foreign '}{type(error).__name__}: {error}"[:400]
        told[name] = (added, kind)
    print(json.dumps(told))


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS")
@pytest.mark.parametrize("provider", PROVIDERS)
def test_absurd_sizes(provider: str, tmp_path: Path) -> None:
    env = {**os.environ, "INTARSIA_CACHE_DIR": str(tmp_path), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, __file__, provider]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout.splitlines()[-1])
    for name, (added, kind) in told.items():
        assert added is None or added < MADE_MIB, f"{name}: the session took {added} MiB"
        assert kind.startswith(("OutOfMemory", "InvalidGraph", "NodeFailed", "Fail")), f"{name}: {kind}"
    memory = [name for name, (_, kind) in told.items() if kind.startswith("OutOfMemory")]
    assert len(memory) > len(told) * 2 // 3, sorted(set(told) - set(memory))


def test_size_that_no_axis_has() -> None:
    source, _ = squared(12)
    with pytest.raises(ort.InvalidGraph, match=r"would have 2\^63 elements or more along an axis: sizes are int64"):
        ort.InferenceSession(source)


def test_power_of_a_symbol() -> None:
    nodes = []
    for i in range(8):
        nodes += [node("Reshape", [f"v{i}", "column"], [f"c{i}"]), node("Mul", [f"v{i}", f"c{i}"], [f"m{i}"])]
        nodes += [node("Reshape", [f"m{i}", "flat"], [f"v{i + 1}"])]
    graph = helper.make_graph(
        nodes, "powers", [helper.make_tensor_value_info("v0", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("v8", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(ints(-1, 1), "column"), numpy_helper.from_array(ints(-1), "flat")],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    with pytest.raises(ort.InvalidGraph, match=r"a size is n\^\d+, which no memory has unless n is 0 or 1"):
        ort.InferenceSession(made)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_power_of_a_symbol_that_a_rule_asks_for(provider: str) -> None:
    """Inference needs no product of n^30 three times; a rule of the CPU that looks whether there is one element does. The
    reference, which has no such rule, runs the model for n = 1."""
    graph = helper.make_graph(
        [
            node("Reshape", ["x", "flat"], ["v"]), node("Reshape", ["v", "column"], ["c"]), node("Add", ["v", "c"], ["m"]),
            node("Reshape", ["v", "plane"], ["p"]), node("Add", ["m", "p"], ["s"]), node("Mul", ["s", "s"], ["y"]),
        ],
        "axes", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"] * 30)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(ints(*v), n) for n, v in {"flat": [-1], "column": [-1, 1], "plane": [-1, 1, 1]}.items()],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    if provider == PROVIDERS[0]:
        with pytest.raises(SizeTooLarge, match=r"a size is n\^\d+, which no memory has unless n is 0 or 1"):
            ort.InferenceSession(made.SerializeToString(), providers=[provider])
        return
    session = ort.InferenceSession(made.SerializeToString(), providers=[provider])
    (found,) = session.run(None, {"x": np.full([1] * 30, 2, np.float32)})
    np.testing.assert_array_equal(found, np.full((1, 1, 1), 36, np.float32))


if __name__ == "__main__":
    main(sys.argv[1])
