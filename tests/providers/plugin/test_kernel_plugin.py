"""A C plugin of kernels: nodes in other versions, bodies of If, Loop and Scan, packed weights, and what its faults become."""

from __future__ import annotations

import gc
import itertools
import warnings
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from tests.providers.plugin.compiled_plugin import CPU, KERNELS, KernelPlugin

import intarsia as ort
from intarsia.errors import Fail, RunTimeout
from intarsia.providers.plugin.control_flow import control_kernels
from intarsia.providers.plugin.interface.handles import held_count
from intarsia.providers.plugin.kernel_program import KernelProgram
from intarsia.providers.plugin.shared_weights import _shared as packed_weights

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
REFERENCE = "ReferenceExecutionProvider"


@pytest.fixture(autouse=True)
def nothing_left(kernels: KernelPlugin, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """After each test every kernel and helper is given back."""
    gc.collect()
    held = held_count()
    yield
    caplog.get_records("call").clear()
    gc.collect()
    counts = kernels.counts()
    assert (counts["alive"], counts["helpers"], control_kernels()) == (0, 0, 0)
    assert held_count() <= held + 8


def value(name: str, kind: int = FLOAT, shape: Sequence[int | str] | None = (3,)) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    name = attributes.pop("name", outputs.split()[0])
    return helper.make_node(op, inputs.split(), outputs.split(), name=name, **attributes)


def model(nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any], *, opset: int = 17, **constants: Any) -> bytes:
    tensors = [
        helper.make_tensor(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape, array.ravel().tolist())
        for name, array in constants.items()
    ]
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), tensors)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("test", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def session(made: bytes, *behind: str) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("partition.keep_islands", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ort.ProviderWarning)
        return ort.InferenceSession(made, options, providers=[KERNELS, *(behind or (CPU,))], enable_fallback=False)


def checked(made: bytes, feed: dict[str, np.ndarray], counts: dict[str, int] | None = None) -> ort.InferenceSession:
    """A session whose results are the reference provider's, and which has run all nodes by the plugin."""
    found = session(made)
    assert found.explain().counts == (counts or {KERNELS: sum(found.explain().counts.values())}), str(found.explain())
    expected = ort.InferenceSession(made, providers=[REFERENCE]).run(None, feed)
    for _ in range(2):
        for got, want in zip(found.run(None, feed), expected, strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=1e-6)
    return found


X = np.array([1, -2, 3], np.float32)


class TestVersions:
    """Nodes of versions for which it has no kernel, in one that it has."""

    def test_older(self, kernels: KernelPlugin) -> None:
        """GlobalAveragePool of opset 22 is version 1 with more types; the plugin has Identity up to 25 only."""
        with kernels.registered():
            checked(model([node("Identity", "x", "y")], [value("x")], [value("y")], opset=25), {"x": X})

    @pytest.mark.parametrize("opset", [6, 7, 13])
    def test_newer(self, kernels: KernelPlugin, opset: int) -> None:
        """Add of version 6, without its flag, is the one of version 14."""
        with kernels.registered():
            made = model([node("Add", "x z", "y")], [value("x"), value("z")], [value("y")], opset=opset)
            checked(made, {"x": X, "z": X[::-1].copy()})

    def test_other_meaning(self, kernels: KernelPlugin) -> None:
        """Add of version 6 along an axis stays with the CPU, which says so."""
        add = node("Add", "x z", "y", broadcast=1, axis=0)
        made = model([add], [value("x", FLOAT, (3, 2)), value("z")], [value("y", FLOAT, (3, 2))], opset=6)
        with kernels.registered():
            found = session(made)
            reason = found.explain().nodes[0].refusals[KERNELS]
            assert reason.code == "version"
            assert reason.reason == f"{KERNELS} has kernels of Add for version 14; this node is of version 6"

    def test_other_types(self, kernels: KernelPlugin) -> None:
        made = model([node("Add", "x x", "y")], [value("x", TensorProto.DOUBLE)], [value("y", TensorProto.DOUBLE)])
        with kernels.registered():
            reason = session(made).explain().nodes[0].refusals[KERNELS]
            assert reason.code == "no-kernel"
            assert "has kernels of Add for T of float, int64, not double[3]" in reason.reason


class TestFunctions:
    """Nodes without a kernel, all of whose pieces have one: as ONNX defines the operator."""

    @pytest.mark.parametrize("opset", [14, 22])
    def test_pieces(self, kernels: KernelPlugin, opset: int) -> None:
        """HardSwish is x * HardSigmoid(x). A node has the name of another's piece."""
        nodes = [node("HardSwish", "x", "a"), node("HardSwish", "a", "b"), node("Add", "a b", "y", name="a/HardSigmoid_0")]
        with kernels.registered():
            found = checked(model(nodes, [value("x")], [value("y")], opset=opset), {"x": X})
            assert [row.op for row in found.explain().nodes] == ["HardSwish", "HardSwish", "Add"]
            (program,) = [one for one in gc.get_objects() if isinstance(one, KernelProgram)]
            assert [made.op_type for made in program.graph.nodes] == ["HardSigmoid", "Mul"] * 2 + ["Add"]

    def test_a_piece_without_a_kernel(self, kernels: KernelPlugin) -> None:
        with kernels.registered():
            found = session(model([node("Softsign", "x", "y")], [value("x")], [value("y")]))
            row = found.explain().nodes[0]
            assert row.provider == CPU
            assert row.refusals[KERNELS].reason == f"{KERNELS} has no kernel for Softsign"


def branches() -> bytes:
    """y = x + z where c, else a * x, with an If of its own inside: for a constant (a) and values around (x, z)."""
    then = helper.make_graph([node("Add", "x z", "t")], "then", [], [value("t")])
    inner_then = helper.make_graph([node("Mul", "x a", "u")], "inner_then", [], [value("u")])
    inner_else = helper.make_graph([node("Identity", "z", "v")], "inner_else", [], [value("v")])
    inner = node("If", "d", "e", then_branch=inner_then, else_branch=inner_else, name="inner")
    other = helper.make_graph([inner], "else", [], [value("e")])
    choice = node("If", "c", "y0", then_branch=then, else_branch=other, name="outer")
    inputs = [value("x"), value("z"), value("c", BOOL, ()), value("d", BOOL, ())]
    return model([choice, node("Add", "y0 a", "y")], inputs, [value("y")], a=np.array([10, 20, 30], np.float32))


class TestIf:
    @pytest.mark.parametrize(("c", "d"), [(True, False), (False, True), (False, False)])
    def test_branches(self, kernels: KernelPlugin, c: bool, d: bool) -> None:
        with kernels.registered():
            checked(branches(), {"x": X, "z": X[::-1].copy(), "c": np.array(c), "d": np.array(d)})

    def test_results_are_the_callers(self, kernels: KernelPlugin) -> None:
        """A branch that hands an input through gives a tensor of its own."""
        branch = [helper.make_graph([], name, [], [value(source)]) for name, source in (("then", "x"), ("else", "z"))]
        choice = node("If", "c", "y", then_branch=branch[0], else_branch=branch[1])
        made = model([choice], [value("x"), value("z"), value("c", BOOL, ())], [value("y")])
        with kernels.registered():
            found = checked(made, {"x": X, "z": X + 1, "c": np.array(True)})
            given = X.copy()
            (y,) = found.run(None, {"x": given, "z": X, "c": np.array(True)})
            given[:] = 0
            np.testing.assert_array_equal(y, X)

    def test_body_without_a_kernel(self, kernels: KernelPlugin) -> None:
        """One node of a body that it has no kernel for leaves the whole node to the next provider, with the reason."""
        branch = [helper.make_graph([node("Relu", "x", name[0])], name, [], [value(name[0])]) for name in ("then", "else")]
        choice = node("If", "c", "y", then_branch=branch[0], else_branch=branch[1])
        with kernels.registered():
            found = session(model([choice], [value("x"), value("c", BOOL, ())], [value("y")]))
            row = found.explain().nodes[0]
            assert row.provider == CPU
            assert "has a kernel for it, but not for 'e' of its bodies" in row.refusals[KERNELS].reason
            assert "no kernel for Relu" in row.refusals[KERNELS].reason

    def test_faults(self, kernels: KernelPlugin) -> None:
        with kernels.registered():
            found = session(branches())
            with kernels.failing("Compute"), pytest.raises(Fail, match=r"Compute fails as ordered.*node 't'.*node 'outer', If"):
                found.run(None, {"x": X, "z": X, "c": np.array(True), "d": np.array(True)})


def loop(trips: bool = True, condition: bool = True) -> bytes:
    """s doubles while it is below a limit, at most n times; each trip also gives s + x, with x from around."""
    body = helper.make_graph(
        [
            node("Mul", "s two", "s1"), node("Less", "s1 limit", "less"), node("Identity", "less", "on"),
            node("Add", "s1 x", "row"),
        ],
        "body", [value("i", INT64, ()), value("on0", BOOL, ()), value("s", FLOAT, ())],
        [value("on", BOOL, ()), value("s1", FLOAT, ()), value("row")],
    )  # fmt: skip
    first = f"{'n' if trips else ''} {'c' if condition else ''} s0"
    names = [name if name.strip() else "" for name in (("n" if trips else ""), ("c" if condition else ""), "s0")]
    made = node("Loop", first, "last rows", body=body, name="loop")
    del made.input[:]
    made.input.extend(names)
    inputs = [value("s0", FLOAT, ()), value("x"), value("limit", FLOAT, ())]
    inputs += [value("n", INT64, ())] * trips + [value("c", BOOL, ())] * condition
    outputs = [value("last", FLOAT, ()), value("rows", FLOAT, ("t", 3))]
    return model([made], inputs, outputs, two=np.array(2, np.float32))


class TestLoop:
    @pytest.mark.parametrize("limit", [0, 20, 1000])
    @pytest.mark.parametrize("trips", [0, 1, 5])
    def test_trips_and_condition(self, kernels: KernelPlugin, limit: float, trips: int) -> None:
        feed = {"s0": np.array(1.5, np.float32), "x": X, "limit": np.array(limit, np.float32), "n": np.array(trips)}
        with kernels.registered():
            before = kernels.counts()["joined"]
            checked(loop(), {**feed, "c": np.array(True)})
            assert kernels.counts()["joined"] - before == (2 if trips else 0)
            checked(loop(), {**feed, "c": np.array(False)})

    def test_what_is_left_out(self, kernels: KernelPlugin) -> None:
        feed = {"s0": np.array(1.5, np.float32), "x": X, "limit": np.array(50, np.float32)}
        with kernels.registered():
            checked(loop(trips=False, condition=False), feed)
            checked(loop(trips=False), {**feed, "c": np.array(True)})
            checked(loop(condition=False), {**feed, "n": np.array(3)})

    def test_it_can_be_stopped(self, kernels: KernelPlugin) -> None:
        """A limit of time ends a loop that would not."""
        body = helper.make_graph(
            [node("Identity", "on0", "on"), node("Add", "s s", "s1")], "body",
            [value("i", INT64, ()), value("on0", BOOL, ()), value("s")], [value("on", BOOL, ()), value("s1")],
        )  # fmt: skip
        made = node("Loop", "n c s", "y", body=body)
        del made.input[0]
        made.input.insert(0, "")
        with kernels.registered():
            found = session(model([made], [value("c", BOOL, ()), value("s")], [value("y")]))
            with pytest.raises(RunTimeout, match=r"longer than its timeout of 0\.2 s"):
                found.run(None, {"c": np.array(True), "s": X}, timeout=0.2)

    def test_faults(self, kernels: KernelPlugin) -> None:
        feed = {"s0": np.array(1.5, np.float32), "x": X, "limit": np.array(9, np.float32)}
        feed |= {"n": np.array(3), "c": np.array(True)}
        with kernels.registered():
            found = session(loop())
            match = r"ConcatOutput fails as ordered.*node 'loop', Loop"
            with kernels.failing("ConcatOutput"), pytest.raises(Fail, match=match):
                found.run(None, feed)


def scan(axis: int, backward: int, out_axis: int, out_backward: int) -> bytes:
    """Sums of the rows of x (times one of z) along an axis so far, of float32 [4, 4]."""
    body = helper.make_graph(
        [node("Mul", "row other", "product"), node("Add", "s product", "s1"), node("Identity", "s1", "out")], "body",
        [value("s", FLOAT, (4,)), value("row", FLOAT, (4,)), value("other", FLOAT, (4,))],
        [value("s1", FLOAT, (4,)), value("out", FLOAT, (4,))],
    )  # fmt: skip
    made = node(
        "Scan", "s0 x z", "last sums", body=body, num_scan_inputs=2, scan_input_axes=[axis, 0], scan_output_axes=[out_axis],
        scan_input_directions=[backward, 0], scan_output_directions=[out_backward], name="scan",
    )  # fmt: skip
    inputs = [value("s0", FLOAT, (4,)), value("x", FLOAT, (4, 4)), value("z", FLOAT, (4, 4))]
    return model([made], inputs, [value("last", FLOAT, (4,)), value("sums", FLOAT, (4, 4))])


class TestScan:
    @pytest.mark.parametrize("axis", [0, 1, -1])
    @pytest.mark.parametrize("directions", [(0, 0), (1, 0), (0, 1), (1, 1)])
    def test_axes_and_directions(self, kernels: KernelPlugin, axis: int, directions: tuple[int, int]) -> None:
        rng = np.random.default_rng(3)
        feed = {"s0": rng.random(4), "x": rng.random((4, 4)), "z": rng.random((4, 4))}
        with kernels.registered():
            before = kernels.counts()["transposed"]
            given = {name: array.astype(np.float32) for name, array in feed.items()}
            checked(scan(axis, directions[0], axis, directions[1]), given)
            assert kernels.counts()["transposed"] - before == (4 if axis else 0)

    def test_version_8_is_left_to_the_next(self, kernels: KernelPlugin) -> None:
        """Its batches are not what kernels of the host's have: the plugin cannot make one."""
        body = helper.make_graph(
            [node("Add", "s row", "s1"), node("Identity", "s1", "out")], "body",
            [value("s", FLOAT, (2,)), value("row", FLOAT, (2,))], [value("s1", FLOAT, (2,)), value("out", FLOAT, (2,))],
        )  # fmt: skip
        made = node("Scan", "lengths s0 x", "last sums", body=body, num_scan_inputs=1)
        made.input[0] = ""
        inputs = [value("s0", FLOAT, (1, 2)), value("x", FLOAT, (1, 3, 2))]
        outputs = [value("last", FLOAT, (1, 2)), value("sums", FLOAT, (1, 3, 2))]
        with kernels.registered():
            found = session(model([made], inputs, outputs, opset=8))
            assert found.explain().nodes[0].provider == CPU

    def test_faults(self, kernels: KernelPlugin) -> None:
        feed = {"s0": np.ones(4, np.float32), "x": np.ones((4, 4), np.float32), "z": np.ones((4, 4), np.float32)}
        with kernels.registered():
            found = session(scan(1, 0, 0, 0))
            with kernels.failing("Transpose"), pytest.raises(Fail, match=r"Transpose fails as ordered.*node 'scan', Scan"):
                found.run(None, feed)
            found.run(None, feed)


def pooled() -> bytes:
    """Means of channels, scaled and shifted by channel, of a picture that is shifted before."""
    shape, one = (2, 3, 4, 5), (2, 3, 1, 1)
    nodes = [
        node("Add", "x shift", "a"), node("GlobalAveragePool", "a", "p"), node("Mul", "p scale", "m"),
        node("Add", "m shift", "s"), node("GlobalAveragePool", "s", "y"), node("Add", "a m", "z"),
    ]  # fmt: skip
    outputs = [value("y", FLOAT, one), value("z", FLOAT, shape)]
    scale, shift = (np.array(v, np.float32).reshape(3, 1, 1) for v in ([1, -2, 3], [0.5, 0.25, 4]))
    return model(nodes, [value("x", FLOAT, shape)], outputs, scale=scale, shift=shift)


class TestLayout:
    @pytest.mark.parametrize(("layout", "transposes"), [("NCHW", 0), ("NHWC", 3)])
    def test_channels_last(self, kernels: KernelPlugin, layout: str, transposes: int) -> None:
        """The pool's input, its result for `z`, and the second result are transposed, and nothing in between."""
        x = np.random.default_rng(1).random((2, 3, 4, 5), np.float32)
        with kernels.registered(layout):
            found = checked(pooled(), {"x": x})
            (program,) = [one for one in gc.get_objects() if isinstance(one, KernelProgram)]
            names = [made.qualified_op for made in program.graph.nodes]
            assert names.count("Transpose") == transposes
            assert names.count("com.ms.internal.nhwc::GlobalAveragePool") == (2 if transposes else 0)
            assert [row.name for row in found.explain().nodes] == ["a", "p", "m", "s", "y", "z"]


def chain() -> bytes:
    """y = (x + z) * x + (x + z) and t = (x + z) * x, of any number of rows."""
    nodes = [node("Add", "x z", "a"), node("Mul", "a x", "t"), node("Identity", "t", "i"), node("Add", "i a", "y")]
    inputs = [value("x", FLOAT, ("n", 3)), value("z", FLOAT, (3,))]
    return model(nodes, inputs, [value("y", FLOAT, ("n", 3)), value("t", FLOAT, ("n", 3))])


class TestAgain:
    """Runs with the sizes of the one before find their calls ready."""

    def test_sizes_in_turn(self, kernels: KernelPlugin) -> None:
        rng = np.random.default_rng(5)
        results = []
        with kernels.registered():
            found = session(chain())
            for rows in (2, 2, 2, 4, 4, 2, 4, 0, 0, 0, 1, 1, 1, 2, 2):
                x, z = rng.random((rows, 3), np.float32), rng.random(3, np.float32)
                results.append((found.run(None, {"x": x, "z": z}), x, z))
        for (y, t), x, z in results:  # each of them is the caller's
            np.testing.assert_allclose(t, (x + z) * x, rtol=1e-6)
            np.testing.assert_allclose(y, (x + z) * x + (x + z), rtol=1e-6)

    def test_inputs_are_not_kept(self, kernels: KernelPlugin) -> None:
        with kernels.registered():
            found = session(chain())
            for _ in range(4):
                x = np.ones((2, 3), np.float32)
                alive = weakref.ref(x)
                found.run(None, {"x": x, "z": np.ones(3, np.float32)})
                del x
                assert alive() is None

    def test_sizes_that_depend_on_data(self, kernels: KernelPlugin) -> None:
        """A kernel that gives fewer rows than before: the run goes on with what it has given."""
        nodes = [node("Add", "x x", "a"), node("Identity", "a", "y")]
        made = model(nodes, [value("x", FLOAT, (4,))], [value("y", FLOAT, ("m",))])
        x = np.arange(4, dtype=np.float32)
        with kernels.registered():
            found = session(made)
            for _ in range(3):
                np.testing.assert_array_equal(found.run(None, {"x": x})[0], 2 * x)
            with kernels.failing("half"):
                for _ in range(3):
                    np.testing.assert_array_equal(found.run(None, {"x": x})[0], 2 * x[:2])

    def test_after_a_fault(self, kernels: KernelPlugin) -> None:
        x, z = np.ones((2, 3), np.float32), np.ones(3, np.float32)
        with kernels.registered():
            found = session(chain())
            for _ in range(3):
                found.run(None, {"x": x, "z": z})
            with kernels.failing("Compute"), pytest.raises(Fail, match=r"Compute fails as ordered .node 'a', Add."):
                found.run(None, {"x": x, "z": z})
            for _ in range(3):
                np.testing.assert_array_equal(found.run(None, {"x": x, "z": z})[0], np.full((2, 3), 4))

    def test_threads(self, kernels: KernelPlugin) -> None:
        rng = np.random.default_rng(6)
        with kernels.registered():
            found = session(chain())

            def run(_: int) -> bool:
                x, z = rng.random((50, 3), np.float32), rng.random(3, np.float32)
                y, t = found.run(None, {"x": x, "z": z})
                return np.allclose(t, (x + z) * x) and np.allclose(y, (x + z) * (x + 1))

            with ThreadPoolExecutor(4) as pool:
                assert all(pool.map(run, range(200)))


def slopes(*values: float) -> bytes:
    """A PRelu of one slope for each value, one after another."""
    names = ["x", *(f"v{i}" for i in range(len(values)))]
    nodes = [node("PRelu", f"{a} slope{i}", b) for i, (a, b) in enumerate(itertools.pairwise(names))]
    constants = {f"slope{i}": np.array([v], np.float32) for i, v in enumerate(values)}
    return model(nodes, [value("x")], [value(names[-1])], **constants)


class TestPackedWeights:
    def test_equal_ones_are_shared(self, kernels: KernelPlugin) -> None:
        """Also among sessions; others are not. Kernels do without the original."""
        with kernels.registered():
            before = kernels.counts()
            sessions = [checked(slopes(0.25, 0.5, 0.25), {"x": X}), checked(slopes(0.25), {"x": X})]
            first, second, third, fourth = kernels.shared_places()[-4:]
            counts = kernels.counts()
            assert (counts["packed"] - before["packed"], counts["shared"] - before["shared"]) == (4, 4)
            assert len({first, second, third, fourth}) == 2
            assert len(packed_weights) == 2
            del sessions
        gc.collect()
        assert not packed_weights

    def test_those_of_the_kernels_own(self, kernels: KernelPlugin) -> None:
        with kernels.registered(), kernels.failing("own weight"):
            checked(slopes(0.25, 0.25), {"x": X})
            assert not packed_weights

    def test_faults(self, kernels: KernelPlugin) -> None:
        match = "SetSharedPrePackedWeight fails as ordered"
        with kernels.registered(), kernels.failing("SetSharedPrePackedWeight"), pytest.raises(Fail, match=match):
            session(slopes(0.25))
        gc.collect()
        assert not packed_weights
