"""Pictures as models want them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from intarsia.cli.inputs.pictures import (
    PRESETS,
    Preprocessing,
    labels_in_metadata,
    preprocessing,
    read_picture,
    size_in_metadata,
)
from intarsia.errors import InvalidArgument, UnknownOption

image = pytest.importorskip("PIL.Image", reason="pictures need Pillow")
ULTRALYTICS = {"stride": "32", "task": "detect", "names": "{0: 'person', 2: 'car'}", "imgsz": "[320, 480]"}


@dataclass(frozen=True)
class Info:
    shape: Sequence[int | str | None]
    type: str = "tensor(float)"
    name: str = "x"


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    """8 columns of 4 pixels: red grows from left to right."""
    pixels = np.zeros((4, 8, 3), np.uint8)
    pixels[..., 0] = np.arange(8) * 20
    image.fromarray(pixels).save(tmp_path / "wide.png")
    return tmp_path / "wide.png"


def read(path: Path, how: Preprocessing, size: tuple[int, int] = (4, 4)) -> np.ndarray:
    return read_picture(path, Info((1, 3, *size), "tensor(uint8)"), [1, 3, *size], how)[0]


def test_letterbox(wide: Path) -> None:
    found = read(wide, Preprocessing(fit="letterbox"))
    assert (found[:, 0] == 114).all()
    assert (found[:, 3] == 114).all()
    assert (found[1:, 1:3] == 0).all()
    assert (np.diff(found[0, 1].astype(int)) > 0).all()


def test_crop_keeps_proportions(wide: Path) -> None:
    found = read(wide, Preprocessing(fit="crop"))[0, 0].astype(int)
    stretched = read(wide, Preprocessing())[0, 0].astype(int)
    assert found[0] > stretched[0] + 20
    assert found[-1] < stretched[-1] - 20


def test_channels(wide: Path) -> None:
    assert read(wide, Preprocessing(bgr=True))[:, 0, -1].argmax() == 2


def test_numbers(wide: Path) -> None:
    info = Info((1, 3, 4, 8))
    how = preprocessing("imagenet", {"fit": "stretch"}, {})
    found = read_picture(wide, info, [1, 3, 4, 8], how)
    pixels = np.zeros((3, 4, 8))
    pixels[0] = np.arange(8) * 20
    mean, std = (np.array(PRESETS["imagenet"][key])[:, None, None] for key in ("mean", "std"))
    np.testing.assert_allclose(found[0], (pixels / 255 - mean) / std, rtol=1e-5)
    raw = read_picture(wide, info, [1, 3, 4, 8], preprocessing("raw", {}, {}))
    assert raw[0, 0, 0].tolist() == list(range(0, 160, 20))


def test_turned_by_its_camera(tmp_path: Path) -> None:
    picture = image.fromarray(np.zeros((4, 8, 3), np.uint8))
    exif = picture.getexif()
    exif[0x0112] = 6  # lies on its side
    picture.save(tmp_path / "a.jpg", exif=exif)
    found = read_picture(tmp_path / "a.jpg", Info((1, 3, None, None)), [1, 3, None, None], Preprocessing())
    assert found.shape == (1, 3, 8, 4)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("", {}, ULTRALYTICS), Preprocessing(fit="letterbox")),
        (("unit", {}, ULTRALYTICS), Preprocessing()),
        (("", {"bgr": True, "fit": None}, ULTRALYTICS), Preprocessing(fit="letterbox", bgr=True)),
        (("", {}, {"names": "x"}), Preprocessing()),
        (("inception", {"mean": (0.1,)}, {}), Preprocessing((0.1,), (0.5,), fit="crop")),
    ],
)
def test_presets(given: tuple[str, dict[str, Any], dict[str, str]], expected: Preprocessing) -> None:
    assert preprocessing(*given) == expected


@pytest.mark.parametrize(
    ("preset", "given", "error", "message"),
    [
        ("imagnet", {}, UnknownOption, "no preset 'imagnet'; did you mean 'imagenet'"),
        ("", {"fit": "letter"}, UnknownOption, "no way 'letter' to fit a picture; did you mean 'letterbox'"),
        ("", {"std": (0.0,)}, InvalidArgument, "--std: expected numbers that are not 0"),
    ],
)
def test_wrong_options(preset: str, given: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        preprocessing(preset, given, {})


def test_metadata() -> None:
    assert size_in_metadata(ULTRALYTICS) == (320, 480)
    assert labels_in_metadata(ULTRALYTICS) == ["person", "1", "car"]


@pytest.mark.parametrize(("imgsz", "names"), [("", ""), ("[1", "{0"), ("[0, 1]", "[1]"), ("(640, 640)", "{-1: 'a'}")])
def test_odd_metadata(imgsz: str, names: str) -> None:
    assert size_in_metadata({"imgsz": imgsz}) is None
    assert labels_in_metadata({"names": names}) == []
