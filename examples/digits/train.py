"""Train digits.onnx and write the sample images: python examples/digits/train.py (about a minute; needs the extra `train`).

Data: scikit-learn's copy of the UCI "Optical Recognition of Handwritten Digits" test set, 1,797 real 8x8 scans by 13 people.
A quarter is held out; the sample images come from it.
"""

import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

HERE = Path(__file__).parent
SAMPLES = 8


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.3), nn.Linear(128, 10),
    )  # fmt: skip


def train(images: torch.Tensor, labels: torch.Tensor, rng: np.random.Generator, epochs: int = 60) -> nn.Module:
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-3)
    steps = epochs * -(-len(images) // 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    for _ in range(epochs):
        for batch in torch.randperm(len(images)).split(64):
            dy, dx = rng.integers(-1, 2, 2)
            picked = images[batch]
            shifted = torch.roll(picked, (int(dy), int(dx)), (2, 3)) if rng.random() < 0.3 else picked
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(shifted), labels[batch]).backward()
            optimizer.step()
            schedule.step()
    return model.eval()


def main() -> None:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    torch.set_num_threads(1)
    data = load_digits()
    pixels = np.round(data.images * (255 / 16)).astype(np.uint8)  # as the PNG files hold them
    seen, held, seen_labels, held_labels = train_test_split(pixels, data.target, test_size=0.25, random_state=0)

    def tensor(x: np.ndarray) -> torch.Tensor:
        return torch.tensor(x[:, None] / 255, dtype=torch.float32)

    model = train(tensor(seen), torch.tensor(seen_labels), rng)
    with torch.no_grad():
        right = (model(tensor(held)).argmax(1).numpy() == held_labels).mean()
    print(f"held-out accuracy: {right:.2%} of {len(held)}")

    batch = torch.export.Dim("batch", min=1, max=1024)
    program = torch.onnx.export(
        nn.Sequential(model, nn.Softmax(-1)).eval(), (tensor(held[:2]),), dynamo=True, verbose=False,
        input_names=["image"], output_names=["probabilities"], dynamic_shapes=({0: batch},),
    )  # fmt: skip
    assert program is not None
    for node in program.model.graph:
        node.metadata_props.clear()  # torch's stack traces name the files of the machine
    program.save(HERE / "digits.onnx", external_data=False)

    labels = {}
    picked = [int(np.flatnonzero(held_labels == digit)[3]) for digit in rng.permutation(10)[:SAMPLES]]
    for position, index in enumerate(picked):
        name = f"{position}.png"
        Image.fromarray(held[index]).save(HERE / "images" / name)
        labels[name] = int(held_labels[index])
    (HERE / "images" / "labels.json").write_text(json.dumps(labels, indent=1) + "\n")


if __name__ == "__main__":
    main()
