"""Sizes of inputs: given by options and arrays, following from one another, guessed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from intarsia.cli.inputs.guessed_sizes import Guesses
from intarsia.cli.inputs.sizes import Sizes, parse_shapes
from intarsia.errors import InvalidArgument, UnknownOption
from intarsia.graph.size_expressions import evaluate, names_in, solve

IDS, TEXT = "tensor(int64)", ("batch", "seq")


@dataclass(frozen=True)
class Info:
    name: str
    shape: Sequence[int | str | None]
    type: str = "tensor(float)"


DECODER = [
    Info("input_ids", ("batch_size", "sequence_length"), IDS),
    Info("attention_mask", ("batch_size", "past_sequence_length + sequence_length"), IDS),
    Info("past_key_values.0.key", ("batch_size", 2, "past_sequence_length", 16)),
]


def shapes(inputs: Sequence[Info], **dims: int) -> list[tuple[int, ...]]:
    sizes = Sizes(inputs)
    sizes.give_dims(dims)
    return [sizes.shape_of(info) for info in inputs]


class TestExpressions:
    @pytest.mark.parametrize(
        ("name", "names", "value"),
        [
            ("past + seq", ("past", "seq"), 9), ("past+1", ("past",), 8), ("2*seq", ("seq",), 4), ("seq", ("seq",), 2),
            ("floor(past/2 - 1) + 1", ("past",), 3), ("past//2", ("past",), 3), ("max(past, seq)", ("past", "seq"), 7),
            ("-(seq - past)", ("seq", "past"), 5), ("past/2", ("past",), None), ("seq - past", ("seq", "past"), None),
            ("seq / 0", ("seq",), None), ("past + other", ("past", "other"), None),
        ],
    )  # fmt: skip
    def test_values(self, name: str, names: tuple[str, ...], value: int | None) -> None:
        assert names_in(name) == names
        assert evaluate(name, {"past": 7, "seq": 2}) == value

    @pytest.mark.parametrize("name", ["x.shape[0]", "batch size", "f(x)", "a if b else c", "1", "", "a" * 300, "a ** b", "'x'"])
    def test_other_names_are_names(self, name: str) -> None:
        assert names_in(name) == (name,)
        assert evaluate(name, {name: 3}) == 3

    @pytest.mark.parametrize(
        ("name", "value", "expected"),
        [("past + seq", 9, ("past", 7)), ("2*past + seq", 12, ("past", 5)), ("2*past + seq", 13, None), ("past + seq", 1, None),
         ("past // 4 + seq", 4, None), ("past + other", 9, None), ("seq + 1", 3, None)],
    )  # fmt: skip
    def test_the_missing_part(self, name: str, value: int, expected: tuple[str, int] | None) -> None:
        assert solve(name, value, {"seq": 2}) == expected


class TestGivenSizes:
    def test_sums(self) -> None:
        assert shapes(DECODER, past_sequence_length=7, sequence_length=2, batch_size=3) == [(3, 2), (3, 9), (3, 2, 7, 16)]

    def test_a_sum_is_given_itself(self) -> None:
        sizes = Sizes(DECODER)
        sizes.give_dims({"sequence_length": 2, "past_sequence_length + sequence_length": 9})
        assert sizes.shape_of(DECODER[2]) == (1, 2, 7, 16)

    def test_arrays(self) -> None:
        inputs = [Info("ids", TEXT, IDS), Info("mask", TEXT, IDS)]
        sizes = Sizes(inputs)
        sizes.follow_array(inputs[0], (2, 5), "[[...]]")
        assert sizes.shape_of(inputs[1]) == (2, 5)
        assert not sizes.guessed

    def test_an_array_gives_a_part_of_a_sum(self) -> None:
        sizes = Sizes(DECODER)
        sizes.follow_array(DECODER[0], (1, 2), "ids.npy")
        sizes.follow_array(DECODER[1], (1, 6), "mask.npy")
        assert sizes.shape_of(DECODER[2]) == (1, 2, 4, 16)

    def test_unnamed_first_dimensions_are_the_batch(self) -> None:
        inputs = [Info("x", (None, 4)), Info("state", (2, None, 8)), Info("rate", (), IDS)]
        assert shapes(inputs, batch=64)[0] == (64, 4)
        sizes = Sizes(inputs)
        sizes.give_dims({"state[1]": 3})
        assert sizes.shape_of(inputs[1]) == (2, 3, 8)

    def test_shapes(self) -> None:
        inputs = [Info("x", ("n", 3, None, "w")), Info("y", ("n", "w"))]
        sizes = Sizes(inputs)
        for name, shape in parse_shapes(["x=[2x3x?x5]"], inputs).items():
            assert name == "x"
            sizes.give_shape(inputs[0], shape, "--shape x")
        assert sizes.shape_of(inputs[1]) == (2, 5)
        assert parse_shapes(["[1, 3]"], inputs[:1]) == {"x": [1, 3]}
        assert parse_shapes(["x="], inputs) == {"x": []}

    @pytest.mark.parametrize(
        ("dims", "shape", "array", "message"),
        [
            ({"batch": 1, "seq": 2}, [1, 3], None, "--shape ids: dimension 'seq' is 2 by --dim seq=2, got 3"),
            ({"seq": 2}, None, (1, 3), "--dim seq=2: given has 3 in dimension 1 of input 'ids'"),
            ({}, [1, 2, 3], None, "has 2 dimensions .*, got 3"),
            ({"sec": 2}, None, None, "no input has a dimension 'sec'; did you mean 'seq'"),
        ],
    )
    def test_contradictions(
        self, dims: dict[str, int], shape: list[int] | None, array: Sequence[int] | None, message: str
    ) -> None:
        info = Info("ids", TEXT, IDS)
        sizes = Sizes([info])

        def give() -> None:
            sizes.give_dims(dims)
            if shape is not None:
                sizes.give_shape(info, shape, "--shape ids")
            if array is not None:
                sizes.follow_array(info, array, "given")

        with pytest.raises(InvalidArgument, match=message):
            give()

    def test_fixed_sizes(self) -> None:
        info = Info("x", (1, 3))
        with pytest.raises(InvalidArgument, match="dimension 1 of input 'x' is 3 in the model, got 4"):
            Sizes([info]).give_shape(info, [1, 4], "--shape x")

    @pytest.mark.parametrize(
        ("text", "error", "message"),
        [("z=1x2", UnknownOption, "no input 'z'; valid: 'x', 'y'"), ("x=1xa", InvalidArgument, "expected sizes .* got 'a'"),
         ("1x2", InvalidArgument, "expects NAME=SIZES for one of x, y")],
    )  # fmt: skip
    def test_wrong_shapes(self, text: str, error: type[Exception], message: str) -> None:
        with pytest.raises(error, match=message):
            parse_shapes([text], [Info("x", (1, 2)), Info("y", (1, 2))])

    def test_unnamed_dimensions_are_told(self) -> None:
        with pytest.raises(UnknownOption, match=r"no input has a dimension 'width'.*--shape x=8x4"):
            shapes([Info("x", (None, 4))], width=3)


class TestGuesses:
    @pytest.mark.parametrize(
        ("info", "expected"),
        [
            (Info("images", ("batch", 3, "height", "width")), (1, 3, 224, 224)),
            (Info("images", (None, None, None, None)), (1, 3, 224, 224)),
            (Info("images", ("n", "h", "w", 3)), (1, 224, 224, 3)),
            (Info("images", (1, 3, 512, "width")), (1, 3, 512, 512)),
            (Info("lines", ("b", 3, 48, "width")), (1, 3, 48, 320)),
            (Info("ids", ("batch_size", "sequence_length"), IDS), (1, 128)),
            (Info("ids", (None, None), IDS), (1, 128)),
            (Info("features", (None, 17)), (1, 17)),
            (Info("audio", ("batch", "num_samples")), (1, 16000)),
            (Info("audio", (None, None)), (1, 16000)),
            (Info("mel", (1, 80, "frames")), (1, 80, 100)),
            (Info("sequence", (1, "T", 8)), (1, 100, 8)),
            (Info("x", ("unheard",)), (1,)),
            (Info("scalar", ()), ()),
        ],
        ids=lambda x: f"{x.name}{list(x.shape)}" if isinstance(x, Info) else "",
    )
    def test_usual_sizes(self, info: Info, expected: tuple[int, ...]) -> None:
        sizes = Sizes([info])
        assert sizes.shape_of(info) == expected
        told = sizes.told_guesses()
        assert ("sizes guessed" in told) == any(not isinstance(d, int) for d in info.shape)

    def test_a_step_of_a_decoder(self) -> None:
        assert shapes(DECODER) == [(1, 1), (1, 129), (1, 2, 128, 16)]

    def test_pictures_of_detectors(self) -> None:
        info = Info("images", ("n", 3, "h", "w"))
        assert Sizes([info], Guesses(dense=True)).shape_of(info) == (1, 3, 640, 640)
        assert Sizes([info], Guesses(picture_size=(320, 480))).shape_of(info) == (1, 3, 320, 480)

    def test_they_are_told_with_the_option_that_fits(self) -> None:
        for inputs, option in ((DECODER, "--dim batch_size=N"), ([Info("x", (None, 4))], "--shape x=Nx4")):
            sizes = Sizes(inputs)
            for info in inputs:
                sizes.shape_of(info)
            assert sizes.told_guesses().endswith(option)
