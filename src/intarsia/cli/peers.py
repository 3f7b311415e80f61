"""The model in other runtimes, which `intarsia bench --compare` and benchmarks/ time beside Intarsia."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from intarsia.errors import UnknownOption, nearest
from intarsia.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Runner:
    """A model ready to run: `run` answers all outputs; creating it took `created_s` seconds."""

    name: str
    run: Callable[[], Sequence[Any]]
    created_s: float


def onnxruntime_runner(model: Path, feeds: Mapping[str, np.ndarray], threads: int) -> Runner:
    """The model in onnxruntime's CPU provider, with its defaults."""
    import onnxruntime

    start = time.perf_counter()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    created = time.perf_counter() - start
    arrays = dict(feeds)
    return Runner("onnxruntime", lambda: session.run(None, arrays), created)


def openvino_runner(model: Path, feeds: Mapping[str, np.ndarray], threads: int) -> Runner:
    """The model in OpenVINO on the CPU: float32 arithmetic (its default may be bfloat16), latency hint, fixed shapes."""
    import openvino

    start = time.perf_counter()
    core = openvino.Core()
    network = core.read_model(str(model))
    network.reshape({name: array.shape for name, array in feeds.items()})
    config: dict[str, Any] = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    if threads:
        config["INFERENCE_NUM_THREADS"] = threads
    compiled, own = core.compile_model(network, "CPU", config), threading.local()
    own.request = compiled.create_infer_request()
    created = time.perf_counter() - start
    arrays = dict(feeds)

    def run() -> list[Any]:
        if not hasattr(own, "request"):  # a request is one thread's at a time
            own.request = compiled.create_infer_request()
        result = own.request.infer(arrays, share_inputs=True, share_outputs=True)
        return [result[i] for i in range(len(result))]

    return Runner("openvino", run, created)


def opencv_runner(model: Path, feeds: Mapping[str, np.ndarray], threads: int) -> Runner:
    """The model in OpenCV's dnn module, by its own engine of version 5 (it also has one that is onnxruntime).

    Raises:
        UnknownOption: OpenCV cannot run the model; it gives an empty network then, or an error of its own.
    """
    import cv2

    if not hasattr(cv2.dnn, "ENGINE_NEW"):
        raise UnknownOption(f"comparing with opencv needs its version 5, not {cv2.__version__}: pip install 'opencv-python>=5'")
    start = time.perf_counter()
    if threads:
        cv2.setNumThreads(threads)
    try:
        network = cv2.dnn.readNetFromONNX(str(model), engine=cv2.dnn.ENGINE_NEW)
        if network.empty():
            raise UnknownOption(f"comparing with opencv: it lacks operators of {model.name}, and gave an empty network")
        outputs = network.getUnconnectedOutLayersNames()
    except cv2.error as error:
        raise UnknownOption(f"comparing with opencv: it cannot run {model.name}: {error}") from error
    created = time.perf_counter() - start
    arrays = {name: np.ascontiguousarray(array) for name, array in feeds.items()}

    def run() -> list[Any]:
        for name, array in arrays.items():
            network.setInput(array, name)
        return list(network.forward(outputs))

    return Runner("opencv", run, created)


def emx_runner(model: Path, feeds: Mapping[str, np.ndarray], threads: int) -> Runner:
    """The model as C of emx-onnx-cgen, compiled by the system's C compiler for this CPU; one thread, sizes fixed.

    Raises:
        UnknownOption: the model cannot be written as C, or the C compiler failed.
    """
    from intarsia.cli.generated_c import compiled

    start = time.perf_counter()
    call = compiled(model, feeds)
    return Runner("emx-onnx-cgen", call, time.perf_counter() - start)


PEERS: dict[str, Callable[[Path, Mapping[str, np.ndarray], int], Runner]] = {
    "onnxruntime": onnxruntime_runner,
    "openvino": openvino_runner,
    "opencv": opencv_runner,
    "emx-onnx-cgen": emx_runner,
}
_PACKAGES = {"opencv": "opencv-python", "emx-onnx-cgen": "emx-onnx-cgen"}  # of those that are no part of the extra `bench`


def peer_runner(name: str, model: Path, feeds: Mapping[str, np.ndarray], threads: int) -> Runner:
    """The model in the runtime `name`.

    Raises:
        UnknownOption: there is no such peer, or it is not installed.
    """
    if name == "torch":
        raise UnknownOption("torch runs no ONNX files: benchmarks/models.py compares with the module of which a model was made")
    if name not in PEERS:
        raise UnknownOption(f"no runtime {name!r} to compare with; {nearest(name, PEERS)}")
    try:
        return PEERS[name](model, feeds, threads)
    except ModuleNotFoundError as error:
        package = _PACKAGES.get(name, "'intarsia[bench]'")
        raise UnknownOption(f"comparing with {name} needs it installed: pip install {package} ({error})") from error
