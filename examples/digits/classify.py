"""Classify handwritten digits and show them in the terminal: python examples/digits/classify.py [IMAGE ...]

Without arguments it reads the held-out scans in images/ and says whether each answer is right.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from PIL import Image

import intarsia

HERE = Path(__file__).parent
SHADES = " ░▒▓█"


def load(path: Path) -> np.ndarray:
    """The picture as float32 [1, 8, 8]: white ink on black, 0 to 1."""
    return np.asarray(Image.open(path).convert("L").resize((8, 8)), np.float32)[None] / 255


def picture(image: np.ndarray) -> list[str]:
    """Eight lines of text, each pixel two block characters wide."""
    return ["".join(SHADES[round(float(p) * (len(SHADES) - 1))] * 2 for p in row) for row in image[0]]


def report(paths: list[Path], images: np.ndarray, probabilities: np.ndarray, labels: dict[str, int]) -> int:
    """Print every digit with its answer; returns how many answers were wrong."""
    wrong = 0
    for path, image, p in zip(paths, images, probabilities, strict=True):
        digit = int(p.argmax())
        label = labels.get(path.name)
        verdict = "" if label is None else "right" if label == digit else f"wrong: it is a {label}"
        wrong += label is not None and label != digit
        second = int(p.argsort()[-2])
        beside = ["", path.name, f"this is a {digit}", f"{p[digit]:.1%} sure; next {second} with {p[second]:.1%}", verdict]
        for line, text in zip(picture(image), beside + [""] * 3, strict=True):
            print(f"  {line}   {text}")
        print()
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description="Classify handwritten digits.")
    parser.add_argument("images", nargs="*", type=Path, help="pictures of one digit, white on black (default: the samples)")
    parser.add_argument("--provider", default="CPUExecutionProvider")
    options = parser.parse_args()
    sys.stdout.reconfigure(encoding="utf-8")  # a pipe on Windows has another one, which lacks shades
    samples = not options.images
    paths = sorted((HERE / "images").glob("*.png")) if samples else options.images
    labels = json.loads((HERE / "images" / "labels.json").read_text(encoding="utf-8")) if samples else {}
    session = intarsia.InferenceSession(HERE / "digits.onnx", providers=[options.provider])
    images = np.stack([load(path) for path in paths])
    probabilities = session.run(["probabilities"], {"image": images})[0]
    wrong = report(paths, images, probabilities, labels)
    if labels:
        print(f"{len(paths) - wrong} of {len(paths)} right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
