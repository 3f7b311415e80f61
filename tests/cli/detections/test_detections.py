"""Boxes of detectors: each known form of outputs, suppression against a loop in NumPy, places in pictures, drawings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

pytest.importorskip("typer", reason="the command line needs the extra 'cli'")
pytest.importorskip("PIL", reason="pictures need Pillow")

from PIL import Image
from typer.testing import CliRunner

import intarsia as ort
from intarsia.cli.app import app
from intarsia.cli.detections.draw import in_picture
from intarsia.cli.detections.recognise import Candidates, recognised
from intarsia.cli.detections.suppress import Found, Limits, best
from intarsia.cli.inputs.pictures import placement

SIZE = (96, 64)  # of the models' inputs: width, height
TRUTH = [(0, 0.9, (10, 8, 42, 40)), (2, 0.8, (50, 20, 90, 60)), (2, 0.6, (4, 30, 30, 62))]
CELLS = sum((SIZE[0] // s) * (SIZE[1] // s) for s in (8, 16, 32))
CLASSES = 3

Outputs = dict[str, np.ndarray]


def centres(box: tuple[float, ...]) -> list[float]:
    left, top, right, bottom = box
    return [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top]


def rows(width: int, count: int, row: Callable[[int, float, tuple[float, ...]], list[float]]) -> np.ndarray:
    """Predictions with the truth among them, and a duplicate of each, shifted by a pixel and less sure."""
    made = np.zeros((1, count, width), np.float32)
    for i, (label, score, box) in enumerate(TRUTH):
        made[0, 5 * i] = row(label, score, box)
        made[0, 5 * i + 1] = row(label, score - 0.2, tuple(x + 1 for x in box))
    return made


def one_hot(label: int, score: float) -> list[float]:
    return [score if c == label else 0.0 for c in range(CLASSES)]


def yolo5() -> Outputs:
    return {"output": rows(5 + CLASSES, 3 * CELLS, lambda c, s, b: [*centres(b), 1.0, *one_hot(c, s)])}


def yolo8() -> Outputs:
    return {"output0": rows(4 + CLASSES, CELLS, lambda c, s, b: [*centres(b), *one_hot(c, s)]).transpose(0, 2, 1).copy()}


def yolox() -> Outputs:
    cells = [(x, y, s) for s in (8, 16, 32) for y in range(SIZE[1] // s) for x in range(SIZE[0] // s)]
    made = np.full((1, CELLS, 5 + CLASSES), -9.0, np.float32)
    made[..., 4:] = 0
    for i, (label, score, box) in enumerate(TRUTH):
        x, y, w, h = centres(box)
        column, row, stride = cells[7 * i]
        place, extent = [x / stride - column, y / stride - row], [np.log(w / stride), np.log(h / stride)]
        made[0, 7 * i] = [*place, *extent, 1.0, *one_hot(label, score)]
    return {"output": made}


def chosen() -> Outputs:
    made = np.zeros((1, 20, 6), np.float32)
    made[0, : len(TRUTH)] = [[*box, score, label] for label, score, box in TRUTH]
    return {"output0": made}


def numbered() -> Outputs:
    return {"output": np.array([[0, *box, label, score] for label, score, box in TRUTH], np.float32)}


def ssd() -> Outputs:
    scale = np.array([*SIZE, *SIZE], np.float32)
    return {
        "bboxes": np.array([[box for *_, box in TRUTH]], np.float32) / scale,
        "labels": np.array([[label for label, *_ in TRUTH]]), "scores": np.array([[s for _, s, _ in TRUTH]], np.float32),
    }  # fmt: skip


def torchvision() -> Outputs:
    return {
        "boxes": np.array([box for *_, box in TRUTH], np.float32), "labels": np.array([label for label, *_ in TRUTH]),
        "scores": np.array([s for _, s, _ in TRUTH], np.float32),
    }  # fmt: skip


def tensorflow() -> Outputs:
    found = ssd()
    padding = np.zeros((1, 4, 4), np.float32)
    return {
        "detection_boxes": np.concatenate([found["bboxes"][..., [1, 0, 3, 2]], padding + 0.5], 1),
        "detection_classes": np.concatenate([found["labels"].astype(np.float32), np.ones((1, 4), np.float32)], 1),
        "detection_scores": np.concatenate([found["scores"], np.full((1, 4), 0.9, np.float32)], 1),
        "num_detections": np.array([3.0], np.float32),
    }


def by_class() -> Outputs:
    """Corners as parts of the picture, and a background that wins elsewhere."""
    made = rows(4 + 1 + CLASSES, 60, lambda c, s, b: [*(np.array(b) / [*SIZE, *SIZE]), 0.0, *one_hot(c, s)])
    made[0, made[0, :, 4:].max(1) == 0, 4] = 1.0
    return {"scores": made[..., 4:].copy(), "boxes": made[..., :4].copy()}


def detr() -> Outputs:
    """Logits that compete with "no object"."""
    logits = np.full((1, 30, CLASSES + 1), -20.0, np.float32)
    logits[..., CLASSES] = 0
    boxes = np.full((1, 30, 4), 0.5, np.float32)
    for i, (label, score, box) in enumerate(TRUTH):
        boxes[0, i] = np.array(centres(box)) / [*SIZE, *SIZE]
        logits[0, i, label] = np.log(score / (1 - score))
    return {"logits": logits, "pred_boxes": boxes}


def rt_detr() -> Outputs:
    """A sigmoid for each class."""
    found = detr()
    logits = np.full((1, 30, CLASSES), -9.0, np.float32)
    for i, (label, score, _) in enumerate(TRUTH):
        logits[0, i, label] = np.log(score / (1 - score))
    return {"pred_boxes": found["pred_boxes"], "logits": logits}


FORMS = [yolo5, yolo8, yolox, chosen, numbered, ssd, torchvision, tensorflow, detr, rt_detr]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_each_form(form: Callable[[], Outputs]) -> None:
    (candidates,) = recognised(form(), SIZE, CLASSES)
    found = best(candidates, Limits(0.25, 0.45))
    assert [each.label for each in found] == [label for label, *_ in TRUTH]
    np.testing.assert_allclose([each.score for each in found], [score for _, score, _ in TRUTH], rtol=1e-5)
    np.testing.assert_allclose([each.box for each in found], [box for *_, box in TRUTH], atol=1e-3)


def test_boxes_with_scores_by_class() -> None:
    (candidates,) = recognised(by_class(), SIZE)
    found = best(candidates, Limits())
    assert [each.label for each in found] == [label + 1 for label, *_ in TRUTH], "0 is the background"
    np.testing.assert_allclose([each.box for each in found], [box for *_, box in TRUTH], atol=1e-3)


@pytest.mark.parametrize("outputs", [{"y": np.zeros((1, 1000), np.float32)}, {"y": ["text"]}, {"mask": np.zeros((1, 1, 8, 8))}])
def test_other_outputs_are_refused(outputs: dict[str, Any]) -> None:
    with pytest.raises(ort.InvalidArgument, match=r"--draw: expected a detector's outputs: .*YOLOv8.*; got"):
        recognised(outputs, SIZE)


def suppressed(boxes: np.ndarray, scores: np.ndarray, limits: Limits) -> list[tuple[int, int]]:
    """(class, box) as a plain loop keeps them."""
    kept = []
    for label in range(scores.shape[1]):
        mine: list[int] = []
        for i in sorted(np.flatnonzero(scores[:, label] >= limits.score), key=lambda i: -scores[i, label]):
            if all(overlap(boxes[i], boxes[j]) <= limits.iou for j in mine):
                mine.append(int(i))
        kept += [(label, i) for i in mine]
    return kept


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    width, height = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    shared = max(width, 0) * max(height, 0)
    areas = [np.prod(x[2:] - x[:2]) for x in (a, b)]
    return float(shared / (sum(areas) - shared))


@pytest.mark.parametrize("iou", [0.2, 0.5, 0.8])
def test_suppression_is_that_of_a_loop(iou: float) -> None:
    rng = np.random.default_rng(0)
    corners = rng.uniform(0, 60, (200, 2))
    boxes = np.concatenate([corners, corners + rng.uniform(5, 40, (200, 2))], 1)
    scores = rng.uniform(0, 1, (200, 4))
    found = best(Candidates(boxes, scores), Limits(0.3, iou))
    expected = suppressed(boxes, scores, Limits(0.3, iou))
    assert sorted((f.label, f.box) for f in found) == sorted((label, tuple(boxes[i])) for label, i in expected)
    assert [f.score for f in found] == sorted((f.score for f in found), reverse=True)


def test_nothing_found() -> None:
    assert best(Candidates(np.zeros((0, 4)), np.zeros((0, 3))), Limits()) == []
    assert best(Candidates(np.ones((4, 4)), np.full((4, 3), 0.1)), Limits()) == []


@pytest.mark.parametrize("fit", ["stretch", "letterbox", "crop"])
@pytest.mark.parametrize("picture", [(192, 64), (50, 200), (96, 64), (1000, 701)])
def test_places_go_back_to_where_they_came_from(fit: str, picture: tuple[int, int]) -> None:
    """A bright square is found in the input, as it was fitted, where `placement` says."""
    from intarsia.cli.inputs import pictures

    image = Image.new("L", picture)
    left, top = picture[0] // 2 - 8, picture[1] // 2 - 6
    image.paste(255, (left, top, left + 16, top + 12))
    small = np.asarray(pictures._FITTED[fit](image, SIZE), float)
    small[small == pictures._LETTERBOX] = 0
    ys, xs = np.mgrid[: SIZE[1], : SIZE[0]] + 0.5
    x, y = (small * xs).sum() / small.sum(), (small * ys).sum() / small.sum()
    place = placement(fit, picture, SIZE)
    (found,) = in_picture([Found(0, 1.0, (x, y, x, y))], picture, place)
    step = max(picture[0] / SIZE[0], picture[1] / SIZE[1])
    np.testing.assert_allclose(found.box[:2], (left + 8, top + 6), atol=max(0.6, 0.6 * step))


def model_of(outputs: Outputs, path: Path, metadata: dict[str, str] | None = None) -> Path:
    """A model with a picture as its input that answers these outputs for any picture."""
    helper = onnx.helper
    constants = [onnx.numpy_helper.from_array(value, f"{name}_value") for name, value in outputs.items()]
    nodes = [helper.make_node("Identity", [f"{name}_value"], [name]) for name in outputs]
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in outputs.items()]
    inputs = [helper.make_tensor_value_info("images", onnx.TensorProto.FLOAT, [1, 3, SIZE[1], SIZE[0]])]
    graph = helper.make_graph(nodes, "g", inputs, infos, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, metadata or {})
    onnx.save(model, path)
    return path


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    Image.new("RGB", (192, 128), (30, 30, 30)).save(tmp_path / "street.png")
    return tmp_path / "street.png"


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["run", *map(str, arguments)])


def test_boxes_are_drawn(tmp_path: Path, picture: Path) -> None:
    names = {"names": "{0: 'person', 1: 'bicycle', 2: 'car'}", "stride": "32", "task": "detect"}
    model = model_of(yolo8(), tmp_path / "yolo.onnx", names)
    done = run(model, "-i", picture, "--draw", tmp_path / "found.png")
    assert done.exit_code == 0, done.output
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["person", "0.900", "20", "16", "84", "80"] in lines
    assert ["car", "0.800", "100", "40", "180", "120"] in lines
    drawn = np.asarray(Image.open(tmp_path / "found.png"))
    assert drawn.shape == (128, 192, 3)
    before = np.asarray(Image.open(picture))
    assert (drawn[79:81, 30:80] != before[79:81, 30:80]).any(-1).any(0).all(), "the lower edge of the person's box"
    assert (drawn[100:, 185:] == before[100:, 185:]).all(), "nothing where nothing is"
    one = run(model, "-i", picture, "--draw", tmp_path / "one.png", "--score", "0.85")
    assert "person" in one.stdout and "car" not in one.stdout


def test_several_pictures_need_a_folder(tmp_path: Path, picture: Path) -> None:
    other = tmp_path / "other.jpg"
    Image.new("RGB", (96, 64)).save(other)
    model = model_of(torchvision(), tmp_path / "ssd.onnx")
    refused = run(model, "-i", picture, "-i", other, "--draw", tmp_path / "found.png")
    assert "2 pictures need a folder" in str(refused.exception)
    done = run(model, "-i", picture, "-i", other, "--draw", tmp_path / "drawn")
    assert done.exit_code == 0, done.output
    assert sorted(file.name for file in (tmp_path / "drawn").iterdir()) == ["other.jpg", "street.png"]
    assert done.stdout.count("3 found") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-i", "PICTURE", "-o", "boxes.png"], "--draw boxes.png draws what was found"),
        (["--draw", "boxes.png"], "no input is a picture"),
        (["-i", "PICTURE", "--draw", "boxes.txt"], "expected a picture"),
    ],
)
def test_what_is_refused(tmp_path: Path, picture: Path, arguments: list[str], message: str) -> None:
    model = model_of(yolo8(), tmp_path / "yolo.onnx")
    done = run(model, *(str(picture) if word == "PICTURE" else word for word in arguments))
    assert isinstance(done.exception, ort.InvalidArgument)
    assert message in str(done.exception)


def test_nothing_is_drawn_where_nothing_is_found(tmp_path: Path, picture: Path) -> None:
    model = model_of(yolo8(), tmp_path / "yolo.onnx")
    done = run(model, "-i", picture, "--draw", tmp_path / "found.png", "--score", "0.99")
    assert done.exit_code == 0
    assert "nothing found; --score lowers" in done.output
    assert (np.asarray(Image.open(tmp_path / "found.png")) == np.asarray(Image.open(picture))).all()


def test_a_yolov8_as_its_own_package_decodes_it() -> None:
    """NudeNet's model, with scores that are drawn, and its own loop with OpenCV's suppression as a reference."""
    package = pytest.importorskip("nudenet", reason="brings a YOLOv8 model")
    model = Path(package.__file__).with_name("320n.onnx")
    picture = np.random.default_rng(0).random((1, 3, 320, 320), np.float32)
    session = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    (output,) = session.run(None, {session.get_inputs()[0].name: picture})
    rows, scores = output[0, :4], output[0, 4:]
    label = 7
    inside = (rows[:2] - rows[2:] / 2 > 0).all(0) & (rows[:2] + rows[2:] / 2 < 320).all(0)  # the reference does not clip widths
    scores[:] = 0
    scores[label] = np.where(inside, np.random.default_rng(1).random(len(inside)), 0)
    expected = package.nudenet._postprocess([output], 0, 0, 1, 1, 320, 320, 320, 320)
    (candidates,) = recognised({"output0": output}, (320, 320), 18)
    found = best(candidates, Limits(0.25, 0.45))
    assert len(found) > 10
    assert {each.label for each in found} == {label}
    expected.sort(key=lambda each: -each["score"])
    np.testing.assert_allclose([each.score for each in found], [each["score"] for each in expected], rtol=1e-6)
    left, top, right, bottom = np.array([each.box for each in found]).T
    np.testing.assert_allclose(
        np.stack([left, top, right - left, bottom - top], 1), [each["box"] for each in expected], atol=1.01
    )  # the reference rounds down
