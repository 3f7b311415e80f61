"""Cast between strings and numbers, compared with Python's own, bit by bit."""

from __future__ import annotations

import math
import random
import struct

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the CPU provider compiles with llvmlite")

from cpu_models import session_of

from intarsia.errors import IntarsiaError

_TYPES = {"float": np.float32, "double": np.float64}
_ODD = (
    "inf", "-Infinity", "nan", " 12 ", "1_0", "0", "-0", "-0.0", ".5", "5.", "0e999", "1e-400", "1e400", "-1e400",
    "0" * 30 + "1", "1" * 30, "0.1e1", "9007199254740993", "18446744073709551615", "18446744073709551616",
    "1e+9999999999999999999999", "3.5e38", "1e-45", "2.2250738585072011e-308", "1\u0660", "4.35", "0.000001",
    "8.5e-11", "7.2057594037927933e+16",
)  # fmt: skip


def _numbers(count: int) -> list[str]:
    """Numbers as people and programs write them, and some that lie between two floats."""
    r = random.Random(5)
    found = list(_ODD)
    while len(found) < count:
        digits = r.randrange(10 ** r.randrange(1, 20))
        found += [
            repr(r.uniform(-1, 1) * 10 ** r.randrange(-70, 70)), str(digits), f"{digits}e{r.randrange(-66, 66)}",
            f"{r.choice(['+', '-', ''])}{digits % 10**9}.{r.randrange(10**8)}E{r.choice(['+', '-', ''])}{r.randrange(40)}",
            f"{struct.unpack('d', struct.pack('Q', r.getrandbits(64)))[0]:.17g}",
            str((2 * (r.getrandbits(53) | 1 << 52) + 1) << r.randrange(6)), repr(np.float32(r.uniform(-1e3, 1e3)).item()),
        ]  # fmt: skip
    return found


@pytest.mark.parametrize("kind", _TYPES)
def test_texts_are_read_as_python_reads_them(kind: str) -> None:
    session = session_of(f"g (string[n] x) => ({kind}[n] y) {{ y = Cast <to = {1 if kind == 'float' else 11}> (x) }}")
    words = _numbers(20_000)
    with np.errstate(over="ignore"):
        expected = np.array([float(w) for w in words]).astype(_TYPES[kind])
    for count in (len(words), 1, 5, 20):
        (found,) = session.run(None, {"x": np.array(words[:count], object)})
        assert found.dtype == _TYPES[kind]
        known = ~np.isnan(expected[:count])
        np.testing.assert_array_equal(np.isnan(found), ~known)
        assert found[known].tobytes() == expected[:count][known].tobytes()


def test_shapes_and_few_texts() -> None:
    session = session_of("g (string[n, m] x) => (float[n, m] y) { y = Cast <to = 1> (x) }")
    for shape in ((0, 3), (1, 1), (3, 7)):
        numbers = np.arange(math.prod(shape), dtype=np.float32).reshape(shape) / 4
        words = np.array([str(v) for v in numbers.flat], object).reshape(shape)
        np.testing.assert_array_equal(session.run(None, {"x": words})[0], numbers)
    (large,) = session.run(None, {"x": np.array([["1e300", "-1e39", "inf"]], object)})
    assert large.tolist() == [[np.inf, -np.inf, np.inf]]


@pytest.mark.parametrize("word", ["", "abc", "1e", "e5", ".", "1.2.3", "--1", "1e5.0", "0x10", "1\x002", "-", "1 2"])
@pytest.mark.parametrize("count", [1, 50])
def test_what_is_no_number_is_an_error(word: str, count: int) -> None:
    session = session_of("g (string[n] x) => (float[n] y) { y = Cast <to = 1> (x) }")
    for _ in range(2):
        with pytest.raises(IntarsiaError, match="could not convert string to float"):
            session.run(None, {"x": np.array(["1.5"] * (count - 1) + [word], object)})


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.int64, np.uint32, np.uint64])
def test_integers_are_written_in_decimal(dtype: type[np.integer]) -> None:
    from intarsia.graph.dtypes import DType

    kind, limits, r = DType.of(np.dtype(dtype)), np.iinfo(dtype), random.Random(6)
    session = session_of(f"g ({kind.onnx_name}[n, m] x) => (string[n, m] y) {{ y = Cast <to = 8> (x) }}")
    numbers = [0, 1, 9, 10, 99, 100, int(limits.min), int(limits.max)]
    numbers += [r.randrange(int(limits.min), int(limits.max)) >> r.randrange(limits.bits) for _ in range(1000)]
    for count in (len(numbers), 8, 0):
        x = np.array(numbers[:count], dtype).reshape(2, -1)
        assert session.run(None, {"x": x})[0].tolist() == [[str(v) for v in row] for row in x.tolist()]


def test_other_casts_of_strings() -> None:
    session = session_of("g (string[n] x) => (int64[n] y, bool[n] z) { y = Cast <to = 7> (x)  z = Cast <to = 9> (x) }")
    y, z = session.run(None, {"x": np.array(["9007199254740993", "-2.7", "0"], object)})
    assert y.tolist() == [9007199254740993, -2, 0]
    assert z.tolist() == [True, True, False]
    session = session_of(
        "g (float[n] x, bool[n] b) => (string[n] y, string[n] z) { y = Cast <to = 8> (x)  z = Cast <to = 8> (b) }"
    )
    y, z = session.run(None, {"x": np.array([0.1, np.inf, np.nan, -np.inf], np.float32), "b": np.array([1, 0, 1, 0], bool)})
    assert y.tolist() == ["0.1", "INF", "NaN", "-INF"]
    assert z.tolist() == ["1", "0", "1", "0"]
