"""Model inputs from command-line forms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from intarsia.cli.feeds import FeedOptions, build_feeds, parse_dims
from intarsia.errors import InvalidArgument, UnknownOption


@dataclass(frozen=True)
class Info:
    name: str
    type: str = "tensor(float)"
    shape: Sequence[int | str | None] = (2, 3)


X, IDS = Info("X"), Info("ids", "tensor(int64)", ("batch", "seq"))


def one(spec: str, info: Info = X, **options: object) -> np.ndarray:
    return build_feeds([info], [spec], FeedOptions(**options)).arrays[info.name]  # type: ignore[arg-type]


def test_inputs_without_a_form_are_random_and_repeatable() -> None:
    first, again = (build_feeds([X, IDS], [], FeedOptions({"batch": 4, "seq": 5}, seed=7)) for _ in range(2))
    assert first.arrays["X"].shape == (2, 3)
    assert first.arrays["X"].dtype == np.float32
    assert first.arrays["ids"].shape == (4, 5)
    assert first.arrays["ids"].dtype == np.int64
    assert set(first.arrays["ids"].ravel()) <= {0, 1}
    assert first.origins == {"X": "@random", "ids": "@random"}
    np.testing.assert_array_equal(first.arrays["X"], again.arrays["X"])


def test_masks_are_ones_and_unknown_sizes_one() -> None:
    mask = one("@random", Info("attention_mask", "tensor(int64)", ("batch", None)))
    np.testing.assert_array_equal(mask, [[1]])


@pytest.mark.parametrize(("spec", "expected"), [("@zeros", np.zeros((2, 3))), ("X=@ones", np.ones((2, 3)))])
def test_constants(spec: str, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(one(spec), expected.astype(np.float32), strict=True)


def test_random_range() -> None:
    ids = one("@random:5:9", IDS, dims={"batch": 50, "seq": 4})
    assert set(ids.ravel()) == {5, 6, 7, 8}
    values = one("@random:-1:1", Info("X", shape=(100,)))
    assert -1 <= values.min() < values.max() <= 1


@pytest.mark.parametrize("type_", ["float16", "bfloat16", "double", "bool", "uint8", "int32"])
def test_random_of_every_kind_has_the_input_type(type_: str) -> None:
    from intarsia.graph.dtypes import DType

    assert one("@random", Info("X", f"tensor({type_})")).dtype == DType[type_.upper()].numpy


def test_literals() -> None:
    np.testing.assert_array_equal(one("ids=[[1, 2], [3, 4]]", IDS), np.array([[1, 2], [3, 4]], np.int64), strict=True)
    np.testing.assert_array_equal(one("[1, 2]", IDS), np.array([[1, 2]], np.int64), strict=True)
    assert one("hello", Info("text", "tensor(string)", (1,))).tolist() == ["hello"]
    assert one('["a", "b"]', Info("text", "tensor(string)", (2,))).tolist() == ["a", "b"]


def test_files(tmp_path: Path) -> None:
    x, ids = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([[4, 5]])
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "all.npz", in_X=x, ids=ids, other=ids + 1)
    np.testing.assert_array_equal(one(f"X={tmp_path}/x.npy"), x)
    np.testing.assert_array_equal(one(f"X={tmp_path}/all.npz"), x)
    np.testing.assert_array_equal(one(f"ids={tmp_path}/all.npz:other", IDS), ids + 1)
    feeds = build_feeds([X, IDS], [f"{tmp_path}/all.npz"], FeedOptions())
    np.testing.assert_array_equal(feeds.arrays["X"], x)
    np.testing.assert_array_equal(feeds.arrays["ids"], ids)
    assert feeds.origins == {"X": "file", "ids": "file"}


def test_pictures(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="pictures need Pillow")
    pixels = np.zeros((4, 6, 3), np.uint8)
    pixels[..., 0] = 255
    image.fromarray(pixels).save(tmp_path / "red.png")
    first = one(f"X={tmp_path}/red.png", Info("X", shape=("n", 3, 2, 3)), mean=(0.5,), std=(0.25,))
    assert first.shape == (1, 3, 2, 3)
    np.testing.assert_allclose(first[0, :, 0, 0], [2, -2, -2])
    last = one(f"X={tmp_path}/red.png", Info("X", "tensor(uint8)", (1, None, None, 3)))
    assert last.shape == (1, 4, 6, 3)
    assert last[0, 0, 0].tolist() == [255, 0, 0]


@pytest.mark.parametrize(
    ("specs", "error", "message"),
    [
        (["Y=@zeros"], UnknownOption, "no input 'Y'; valid: 'X', 'ids'"),
        (["id=@zeros"], UnknownOption, "did you mean 'ids'"),
        (["@zeros"], InvalidArgument, "expects NAME=FORM for one of X, ids; got '@zeros'"),
        (["X=@normal"], InvalidArgument, "unknown form '@normal'; expected FILE.npy"),
        (["X=@random:a:b"], InvalidArgument, "'@random:a:b' expects two numbers"),
        (["X=nonsense"], InvalidArgument, "input 'X': cannot read 'nonsense'"),
        (['X=["a"]'], InvalidArgument, r"is no tensor\(float\)"),
        (["X=none.npy"], InvalidArgument, "cannot read 'none.npy' as a NumPy file"),
        (["X=none.png"], InvalidArgument, "is no picture: expected 1, 3 or 4 channels"),
    ],
)
def test_errors_say_what_was_expected(specs: list[str], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        build_feeds([X, IDS], specs, FeedOptions())


def test_archive_errors_name_its_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", first=np.ones(1), second=np.ones(1))
    with pytest.raises(InvalidArgument, match="has no array for X, ids; it has first, second"):
        build_feeds([X, IDS], [str(tmp_path / "a.npz")], FeedOptions())
    with pytest.raises(InvalidArgument, match="has no array 'X'; valid: 'first', 'second'"):
        build_feeds([X, IDS], [f"X={tmp_path}/a.npz"], FeedOptions())


def test_broken_picture(tmp_path: Path) -> None:
    pytest.importorskip("PIL.Image", reason="pictures need Pillow")
    (tmp_path / "a.png").write_bytes(b"no picture")
    with pytest.raises(InvalidArgument, match="input 'X': cannot read the picture"):
        one(f"X={tmp_path}/a.png", Info("X", shape=(1, 1, 8, 8)))


def test_strings_and_sequences_cannot_be_random() -> None:
    with pytest.raises(InvalidArgument, match="'text' holds strings: give it as a JSON literal"):
        build_feeds([Info("text", "tensor(string)")], [], FeedOptions())
    with pytest.raises(InvalidArgument, match=r"is a seq\(tensor\(float\)\); the command line can make tensors only"):
        build_feeds([Info("s", "seq(tensor(float))")], [], FeedOptions())


def test_dims() -> None:
    assert parse_dims(["batch=2", "seq=0"]) == {"batch": 2, "seq": 0}
    with pytest.raises(InvalidArgument, match="--dim expects NAME=VALUE; got 'batch'"):
        parse_dims(["batch"])
    with pytest.raises(InvalidArgument, match="--dim batch expects a whole number of at least 0; got '-1'"):
        parse_dims(["batch=-1"])
    with pytest.raises(UnknownOption, match="no input has a dimension 'bach'; did you mean 'batch'"):
        build_feeds([IDS], [], FeedOptions({"bach": 2}))
