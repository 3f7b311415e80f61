"""Model inputs from command-line forms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from intarsia.cli.inputs.feeds import FeedOptions, Feeds, build_feeds, parse_dims
from intarsia.cli.inputs.signature import Signature
from intarsia.errors import InvalidArgument, UnknownOption


@dataclass(frozen=True)
class Info:
    name: str
    type: str = "tensor(float)"
    shape: Sequence[int | str | None] = (2, 3)


X, IDS = Info("X"), Info("ids", "tensor(int64)", ("batch", "seq"))


def fed(inputs: Sequence[Info], specs: Sequence[str], options: FeedOptions, **more: Any) -> Feeds:
    return build_feeds(Signature(inputs, **more), specs, options)


def one(spec: str, info: Info = X, **options: Any) -> np.ndarray:
    return fed([info], [spec], FeedOptions(**options)).arrays[info.name]


def test_inputs_without_a_form_are_random_and_repeatable() -> None:
    first, again = (fed([X, IDS], [], FeedOptions({"batch": 4, "seq": 5}, seed=7)) for _ in range(2))
    assert first.arrays["X"].shape == (2, 3)
    assert first.arrays["X"].dtype == np.float32
    assert first.arrays["ids"].shape == (4, 5)
    assert first.arrays["ids"].dtype == np.int64
    assert set(first.arrays["ids"].ravel()) <= {0, 1}
    assert first.origins == {"X": "@random", "ids": "@random"}
    np.testing.assert_array_equal(first.arrays["X"], again.arrays["X"])


def test_masks_are_ones() -> None:
    mask = one("@random", Info("attention_mask", "tensor(int64)", ("batch", "parts")))
    np.testing.assert_array_equal(mask, np.ones((1, 128)))


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
    feeds = fed([X, IDS], [f"{tmp_path}/all.npz"], FeedOptions())
    np.testing.assert_array_equal(feeds.arrays["X"], x)
    np.testing.assert_array_equal(feeds.arrays["ids"], ids)
    assert feeds.origins == {"X": "file", "ids": "file"}


def test_pictures(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="pictures need Pillow")
    pixels = np.zeros((4, 6, 3), np.uint8)
    pixels[..., 0] = 255
    image.fromarray(pixels).save(tmp_path / "red.png")
    first = one(f"X={tmp_path}/red.png", Info("X", shape=("n", 3, 2, 3)), pictures={"mean": (0.5,), "std": (0.25,)})
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
        (["X=@random:5:1"], InvalidArgument, "expects a LOW that is not above HIGH"),
        (["X=@random:0:inf"], InvalidArgument, "expects a LOW that is not above HIGH, and both finite"),
        (["X=nonsense"], InvalidArgument, "input 'X': cannot read 'nonsense'"),
        (['X=["a"]'], InvalidArgument, r"is no tensor\(float\)"),
        (["X=none.npy"], InvalidArgument, "cannot read 'none.npy' as a NumPy file"),
        (["X=none.png"], InvalidArgument, "is no picture: expected 1, 3 or 4 channels"),
    ],
)
def test_errors_say_what_was_expected(specs: list[str], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        fed([X, IDS], specs, FeedOptions())


def test_archive_errors_name_its_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", first=np.ones(1), second=np.ones(1))
    with pytest.raises(InvalidArgument, match="has no array for X, ids; it has first, second"):
        fed([X, IDS], [str(tmp_path / "a.npz")], FeedOptions())
    with pytest.raises(InvalidArgument, match="has no array 'X'; valid: 'first', 'second'"):
        fed([X, IDS], [f"X={tmp_path}/a.npz"], FeedOptions())


def test_broken_picture(tmp_path: Path) -> None:
    pytest.importorskip("PIL.Image", reason="pictures need Pillow")
    (tmp_path / "a.png").write_bytes(b"no picture")
    with pytest.raises(InvalidArgument, match="input 'X': cannot read the picture"):
        one(f"X={tmp_path}/a.png", Info("X", shape=(1, 1, 8, 8)))


def test_strings_and_sequences_cannot_be_random() -> None:
    with pytest.raises(InvalidArgument, match="'text' holds strings: give it as a JSON literal"):
        fed([Info("text", "tensor(string)")], [], FeedOptions())
    with pytest.raises(InvalidArgument, match=r"is a seq\(tensor\(float\)\); the command line can make tensors only"):
        fed([Info("s", "seq(tensor(float))")], [], FeedOptions())


def test_dims() -> None:
    assert parse_dims(["batch=2", "seq=0"]) == {"batch": 2, "seq": 0}
    with pytest.raises(InvalidArgument, match="--dim expects NAME=VALUE; got 'batch'"):
        parse_dims(["batch"])
    with pytest.raises(InvalidArgument, match="--dim batch expects a whole number of at least 0; got '-1'"):
        parse_dims(["batch=-1"])
    with pytest.raises(UnknownOption, match="no input has a dimension 'bach'; did you mean 'batch'"):
        fed([IDS], [], FeedOptions({"bach": 2}))


class TestBatches:
    @pytest.fixture
    def pictures(self, tmp_path: Path) -> Path:
        image = pytest.importorskip("PIL.Image", reason="pictures need Pillow")
        for i, size in enumerate(((4, 6), (8, 2), (5, 5))):
            image.fromarray(np.full((*size, 3), 100 * i, np.uint8)).save(tmp_path / f"{i}.png")
        (tmp_path / "notes.txt").write_text("no picture")
        return tmp_path

    def test_several_pictures_get_the_size_of_the_first(self, pictures: Path) -> None:
        info = Info("X", shape=("n", 3, "h", "w"))
        feeds = fed([info], [f"X={pictures}/0.png", f"{pictures}/1.png"], FeedOptions())
        assert feeds.arrays["X"].shape == (2, 3, 4, 6)
        np.testing.assert_allclose(feeds.arrays["X"][:, 0, 0, 0], [0, 100 / 255], rtol=1e-6)
        assert feeds.origins["X"] == f"{pictures}/0.png, {pictures}/1.png"

    @pytest.mark.parametrize("form", ["", "/*.png", "/?.png"])
    def test_folders_and_patterns(self, pictures: Path, form: str) -> None:
        array = one(f"X={pictures}{form}", Info("X", "tensor(uint8)", ("n", 2, 2, 3)))
        assert array[:, 0, 0, 0].tolist() == [0, 100, 200]

    def test_an_empty_folder(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidArgument, match=r"no pictures and no .npy files in"):
            one(f"X={tmp_path}")

    def test_one_picture_fills_the_batch_that_is_wanted(self, pictures: Path) -> None:
        feeds = fed([Info("X", shape=("n", 3, 4, 4))], [f"{pictures}/2.png"], FeedOptions({"n": 4}))
        assert feeds.arrays["X"].shape == (4, 3, 4, 4)
        assert feeds.origins["X"].endswith("2.png, 4 times")

    def test_a_model_that_takes_one_at_once_runs_for_each(self, pictures: Path) -> None:
        inputs = [Info("X", shape=(1, 3, 2, 2)), Info("other", shape=(1,))]
        feeds = fed(inputs, [f"X={pictures}"], FeedOptions())
        assert feeds.rounds == 3
        rounds = list(feeds.each_round())
        assert [r["X"].shape for r in rounds] == [(1, 3, 2, 2)] * 3
        assert all(r["other"] is feeds.arrays["other"] for r in rounds)
        with pytest.raises(InvalidArgument, match="'X' was given 3 times, and the model takes 1 at once"):
            feeds.at_once()

    def test_what_does_not_make_up_a_batch(self, pictures: Path, tmp_path: Path) -> None:
        others = tmp_path / "others"
        others.mkdir()
        np.save(others / "a.npy", np.ones((1, 3), np.float32))
        np.save(others / "b.npy", np.ones((1, 4), np.float32))
        info = Info("X", shape=("n", "m"))
        with pytest.raises(InvalidArgument, match=r"b.npy' is float32 \[1, 4\], which does not make up a batch with"):
            fed([info], [f"{others}/a.npy", f"{others}/b.npy"], FeedOptions())
        with pytest.raises(InvalidArgument, match="takes 2 at once; 3 were given"):
            fed([Info("X", shape=(2, 3, 2, 2))], [str(pictures)], FeedOptions())
        with pytest.raises(InvalidArgument, match="'@zeros' and '@ones' exclude one another"):
            fed([info], ["@zeros", "@ones"], FeedOptions())
        with pytest.raises(InvalidArgument, match="3 pictures do not make up a batch of 4"):
            fed([Info("X", shape=("n", 3, 2, 2))], [str(pictures)], FeedOptions({"n": 4}))


def test_sizes_of_arrays_hold_for_other_inputs() -> None:
    feeds = fed([IDS, Info("attention_mask", "tensor(int64)", ("batch", "seq"))], ["ids=[[1, 2, 3]]"], FeedOptions())
    assert feeds.arrays["attention_mask"].tolist() == [[1, 1, 1]]
    assert not feeds.notes


def test_arrays_that_contradict_an_option() -> None:
    with pytest.raises(InvalidArgument, match=r"--dim seq=4: \[\[1, 2\]\] has 2 in dimension 1 of input 'ids'"):
        one("ids=[[1, 2]]", IDS, dims={"seq": 4})


def test_notes_say_what_was_guessed_and_what_was_not_used(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=np.zeros((2, 3), np.float32), other=np.ones(1))
    feeds = fed([X, IDS], [str(tmp_path / "a.npz")], FeedOptions())
    assert feeds.notes[0].endswith("a.npz: not used, since no input is called so: other")
    assert feeds.notes[1].startswith("sizes guessed: batch = 1, seq = 128")
    assert feeds.guessed == {"batch": 1, "seq": 128}


def test_dimensions_that_are_given_twice() -> None:
    with pytest.raises(InvalidArgument, match="--dim batch was given twice, as 2 and 3"):
        parse_dims(["batch=2", "batch=3"])
    assert parse_dims(["past + seq=9"]) == {"past + seq": 9}


def test_what_was_said_of_pictures_without_one() -> None:
    feeds = fed([X], ["@zeros"], FeedOptions(preset="imagenet"))
    assert feeds.notes == ("no input is a picture: what was said of pictures has no effect",)
    assert fed([X], ["@zeros"], FeedOptions(pictures={"mean": None})).notes == ()
    assert one("@random:3:3", IDS, dims={"batch": 1, "seq": 2}).tolist() == [[3, 3]]
