"""Write twenty model families as ONNX with torch's own outputs: python tests/models/export.py OUTDIR [--size full] [NAME ...]

Weights are random with a fixed seed; `small` copies (the default) export in seconds, `full` ones have the sizes people use.
NAME.npz beside NAME.onnx holds `in_*` and `out_*` (one call's inputs and torch's outputs), and, where sizes may vary,
`other_in_*` and `other_out_*` (a call with other sizes). Needs the extra `train`.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers as hf
from architectures import ARCHITECTURES
from torch import Tensor, nn


class Named(nn.Module):
    """A transformers model with positional inputs and one tensor output."""

    def __init__(self, model: nn.Module, inputs: Sequence[str], output: str) -> None:
        super().__init__()
        self.model, self.inputs, self.output = model, inputs, output

    def forward(self, *args: Tensor) -> Tensor:
        return getattr(self.model(**dict(zip(self.inputs, args, strict=True)), return_dict=True), self.output)


class Tagger(nn.Module):
    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, 2, batch_first=True, bidirectional=True)
        self.classes = nn.Linear(2 * width, 20)

    def forward(self, ids: Tensor) -> Tensor:
        return self.classes(self.lstm(self.embedding(ids))[0])


@dataclass(frozen=True)
class Case:
    model: nn.Module
    names: tuple[str, ...]
    sample: Callable[[int, int], tuple[Tensor, ...]]  # (batch, sequence length) -> inputs
    dynamic: tuple[str, ...]  # which of "batch" and "seq" may vary, in the order of the axes
    sizes: tuple[int, int] = (1, 16)  # batch and sequence length of the main call


def bert_base(small: bool) -> Case:
    shrink: dict[str, Any] = {
        "vocab_size": 500, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
    }  # fmt: skip
    config = hf.BertConfig(**(shrink if small else {}), attn_implementation="sdpa")

    def sample(batch: int, seq: int) -> tuple[Tensor, ...]:
        mask = torch.ones(batch, seq, dtype=torch.long)
        mask[-1, seq - seq // 4 :] = 0 if batch > 1 else 1
        return torch.randint(0, config.vocab_size, (batch, seq)), mask

    names = ("input_ids", "attention_mask")
    model = Named(hf.BertModel(config), names, "last_hidden_state")
    return Case(model, names, sample, ("batch", "seq"), (1, 16 if small else 128))


def gpt2(small: bool) -> Case:
    shrink: dict[str, Any] = {
        "vocab_size": 500, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128, "bos_token_id": 0, "eos_token_id": 0,
    }  # fmt: skip
    config = hf.GPT2Config(**(shrink if small else {}), use_cache=False)
    model = Named(hf.GPT2LMHeadModel(config), ["input_ids"], "logits")

    def sample(batch: int, seq: int) -> tuple[Tensor, ...]:
        return (torch.randint(0, config.vocab_size, (batch, seq)),)

    return Case(model, ("input_ids",), sample, ("batch", "seq"), (1, 16 if small else 64))


def images(size: int) -> Callable[[int, int], tuple[Tensor, ...]]:
    return lambda batch, _: (torch.randn(batch, 3, size, size),)


def vit_base(small: bool) -> Case:
    shrink: dict[str, Any] = {
        "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, "image_size": 64,
    }  # fmt: skip
    config = hf.ViTConfig(**(shrink if small else {}))
    model = Named(hf.ViTModel(config), ["pixel_values"], "last_hidden_state")
    return Case(model, ("pixel_values",), images(config.image_size), ("batch",))


def resnet50(small: bool) -> Case:
    shrink: dict[str, Any] = {"embedding_size": 16, "hidden_sizes": [32, 64, 96, 128], "depths": [1, 2, 1, 1]}
    config = hf.ResNetConfig(**(shrink if small else {}), num_labels=20 if small else 1000)
    model = Named(hf.ResNetForImageClassification(config), ["pixel_values"], "logits")
    return Case(model, ("pixel_values",), images(64 if small else 224), ("batch",))


def mobilenet_v2(small: bool) -> Case:
    config = hf.MobileNetV2Config(depth_multiplier=0.35 if small else 1.0, num_labels=20 if small else 1000)
    model = Named(hf.MobileNetV2ForImageClassification(config), ["pixel_values"], "logits")
    return Case(model, ("pixel_values",), images(64 if small else 224), ("batch",))


def vgg16(small: bool) -> Case:
    shrink, wide, classes = (8, 64, 20) if small else (1, 4096, 1000)
    layers: list[nn.Module] = []
    channels = 3
    for width in [64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0]:
        if not width:
            layers.append(nn.MaxPool2d(2, 2))
            continue
        layers += [nn.Conv2d(channels, width // shrink, 3, padding=1), nn.ReLU()]
        channels = width // shrink
    side = 2 if small else 7
    features = channels * side * side
    head = [nn.Linear(features, wide), nn.ReLU(), nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, classes)]
    model = nn.Sequential(*layers, nn.Flatten(), *head)
    return Case(model, ("image",), images(side * 32), ("batch",))


def lstm_text(small: bool) -> Case:
    words, width = (300, 32) if small else (8000, 256)
    return Case(Tagger(words, width), ("ids",), lambda b, s: (torch.randint(0, words, (b, s)),), (), (1, 20 if small else 100))


def mlp_tabular(small: bool) -> Case:
    wide = 64 if small else 256
    layers = [nn.Linear(64, wide), nn.ReLU(), nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, 2), nn.Softmax(-1)]
    return Case(nn.Sequential(*layers), ("features",), lambda b, _: (torch.randn(b, 64),), ("batch",))


def architecture(name: str) -> Callable[[bool], Case]:
    """An architecture of `architectures.py`, for one batch size."""

    def build(small: bool) -> Case:
        model, sample = ARCHITECTURES[name](small)
        names = tuple(f"input_{i}" for i in range(len(sample(1))))
        return Case(model, names, lambda batch, _: sample(batch), ())

    return build


FAMILIES: dict[str, Callable[[bool], Case]] = {
    f.__name__: f for f in (bert_base, vit_base, resnet50, mobilenet_v2, gpt2, vgg16, lstm_text, mlp_tabular)
} | {name: architecture(name) for name in ARCHITECTURES}


def unsettle_norms(model: nn.Module) -> None:
    """Give batch norms statistics that are not the identity, so that folding them wrongly shows."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d) and module.running_mean is not None and module.running_var is not None:
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
            module.weight.uniform_(0.8, 1.2)
            module.bias.normal_(0, 0.1)


def export(name: str, folder: Path, small: bool, batch: int = 0) -> None:
    """Write `folder`/`name`.onnx and .npz; `batch`: of the main call, for which a model is made whose batch is fixed."""
    torch.manual_seed(0)
    case = FAMILIES[name](small)
    model = case.model.eval()
    longest = 128 if small else 512
    limits = {"batch": torch.export.Dim("batch", min=1, max=64), "seq": torch.export.Dim("seq", min=2, max=longest)}
    axes = {axis: limits[dim] for axis, dim in enumerate(case.dynamic)}
    arrays: dict[str, np.ndarray] = {}
    with torch.no_grad():
        unsettle_norms(model)
        batch, seq = batch or case.sizes[0], case.sizes[1]
        main = case.sample(batch, seq)
        calls = {"": main} | ({"other_": case.sample(batch + 2, seq - 5)} if case.dynamic else {})
        for prefix, inputs in calls.items():
            arrays |= {f"{prefix}in_{n}": a.numpy() for n, a in zip(case.names, inputs, strict=True)}
            outputs = model(*inputs)
            for i, output in enumerate(outputs if isinstance(outputs, tuple) else (outputs,)):
                arrays[f"{prefix}out_{i}"] = output.numpy()
        dynamic = tuple(axes for _ in main)
        shapes = None if not axes else (dynamic,) if isinstance(model, Named) else dynamic
        example = case.sample(batch + 1, seq) if axes else main  # torch takes a size of 1 for a constant
        program = torch.onnx.export(model, example, dynamo=True, verbose=False, input_names=case.names, dynamic_shapes=shapes)
    assert program is not None
    for node in program.model.graph:
        node.metadata_props.clear()  # torch's stack traces
    program.save(folder / f"{name}.onnx", external_data=False)
    np.savez(folder / f"{name}.npz", **arrays)  # type: ignore[arg-type]


def main() -> None:
    parser = argparse.ArgumentParser(description="Export model families with torch's outputs.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(FAMILIES))
    parser.add_argument("--size", choices=["small", "full"], default="small")
    parser.add_argument("--batch", type=int, default=0, help="of the main call, and of models whose batch is fixed (1)")
    options = parser.parse_intermixed_args()
    if unknown := set(options.names) - set(FAMILIES):
        parser.error(f"unknown {', '.join(sorted(unknown))}; there are {', '.join(FAMILIES)}")
    warnings.filterwarnings("ignore")
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.names or FAMILIES:
        start = time.perf_counter()
        export(name, options.folder, options.size == "small", options.batch)
        nbytes = (options.folder / f"{name}.onnx").stat().st_size
        print(f"{name:14} {nbytes / 1e6:8.2f} MB {time.perf_counter() - start:6.1f} s", flush=True)


if __name__ == "__main__":
    main()
