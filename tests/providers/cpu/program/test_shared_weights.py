"""Models with weights in common: each weight is in memory once, and nobody else's changes reach it."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

import intarsia as ort
from intarsia.providers.cpu.program import shared_weights
from intarsia.providers.cpu.program.shared_weights import LEAST_NBYTES, share

SIZE = 600
RNG = np.random.default_rng(5)
WEIGHT = RNG.standard_normal((SIZE, SIZE)).astype(np.float32) / 24
OTHER = RNG.standard_normal((SIZE, SIZE)).astype(np.float32) / 24
X = RNG.standard_normal((2, SIZE)).astype(np.float32)


def model(name: str, last: str, *weights: np.ndarray) -> bytes:
    products = "".join(f" v{i + 1} = MatMul(v{i}, {name}{i})" for i in range(len(weights)))
    text = f"g (float[n, {SIZE}] v0) => (float[n, {SIZE}] y) {{ {products}  y = {last}(v{len(weights)}) }}"
    made = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> ' + text)
    made.graph.initializer.extend(onnx.numpy_helper.from_array(w, f"{name}{i}") for i, w in enumerate(weights))
    return made.SerializeToString()


def large(session: ort.InferenceSession) -> list[np.ndarray]:
    kept = session._model
    program = kept.program if hasattr(kept, "program") else kept.programs[0]
    return [a for e in program.executable.nested() for a in e.constants.values() if a.nbytes >= LEAST_NBYTES]


def addresses(session: ort.InferenceSession) -> set[int]:
    return {array.ctypes.data for array in large(session)}


class TestSessions:
    def test_weights_in_common(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("INTARSIA_PROGRAM_CACHE", "0")
        first = ort.InferenceSession(model("a", "Relu", WEIGHT, OTHER))
        second = ort.InferenceSession(model("b", "Neg", WEIGHT, WEIGHT + 1))
        assert len(addresses(first) & addresses(second)) == 1
        assert len(addresses(first) | addresses(second)) == 3
        expected = -(X.astype(np.float64) @ WEIGHT @ (WEIGHT.astype(np.float64) + 1))
        first.close()
        del first
        gc.collect()
        np.testing.assert_allclose(second.run(None, {"v0": X})[0], expected, rtol=1e-4, atol=1e-2)
        third = ort.InferenceSession(model("c", "Abs", WEIGHT))
        assert addresses(third) <= addresses(second)

    def test_starts_from_the_cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
        monkeypatch.delenv("INTARSIA_PROGRAM_CACHE", raising=False)
        sources = [tmp_path / "a.onnx", tmp_path / "b.onnx"]
        for source, data in zip(sources, (model("a", "Relu", WEIGHT, OTHER), model("b", "Neg", WEIGHT, OTHER)), strict=True):
            source.write_bytes(data)
            os.utime(source, (1e9, 1e9))
            ort.InferenceSession(source)
        gc.collect()
        first, second = map(ort.InferenceSession, sources)
        assert type(first._model).__name__ == type(second._model).__name__ == "DirectModel"
        assert addresses(first) == addresses(second)
        y = X.astype(np.float64) @ WEIGHT @ OTHER
        np.testing.assert_allclose(second.run(None, {"v0": X})[0], -y, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(first.run(None, {"v0": X})[0], np.maximum(y, 0), rtol=1e-4, atol=1e-4)


class TestArrays:
    @pytest.fixture
    def known(self) -> np.ndarray:
        array = RNG.standard_normal(LEAST_NBYTES // 8 + 3)
        share({"known": array})
        return array

    def test_equal_ones(self, known: np.ndarray) -> None:
        assert share({"x": known.copy()})["x"] is known

    @pytest.mark.parametrize("place", [0, 1, 1000, -1])
    def test_one_element_differs(self, known: np.ndarray, place: int) -> None:
        changed = known.copy()
        changed[place] += 1
        assert share({"x": changed})["x"] is changed

    def test_the_last_bytes_differ(self) -> None:
        first = np.zeros(LEAST_NBYTES + 5, np.uint8)
        second = first.copy()
        second[-1] = 1
        share({"known": first})
        assert share({"x": second})["x"] is second
        assert share({"x": first.copy()})["x"] is first

    def test_other_types_shapes_and_layouts(self, known: np.ndarray) -> None:
        for array in (known.view(np.int64), known.reshape(1, -1), np.stack([known, known])[:, ::2], known[:9].copy()):
            assert share({"x": array})["x"] is array

    def test_two_of_one_program_stay(self) -> None:
        array = RNG.standard_normal(LEAST_NBYTES)
        pair = {"a": array, "b": array.copy()}
        assert all(found is pair[name] for name, found in share(pair).items())

    def test_nobody_is_kept_alive(self) -> None:
        known = RNG.standard_normal(LEAST_NBYTES)
        share({"known": known})
        assert shared_weights._kind(known) in shared_weights._known
        copied = known.copy()
        del known
        gc.collect()
        assert share({"x": copied})["x"] is copied

    def test_pages_of_a_file_give_way_to_such_pages_only(self, tmp_path: Path, known: np.ndarray) -> None:
        path = tmp_path / "w.bin"
        path.write_bytes(known.tobytes())
        first, second = (np.memmap(path, known.dtype, "r") for _ in range(2))
        assert share({"x": first})["x"] is first
        assert share({"x": second})["x"] is first

    def test_files_of_models_are_left_alone(self, tmp_path: Path) -> None:
        path = tmp_path / "w.bin"
        path.write_bytes(bytes(64))
        assert not shared_weights.is_in_own_memory(np.memmap(path, np.uint8, "r")[8:])
        assert shared_weights.is_in_own_memory(np.zeros((4, 4))[1:].T)
