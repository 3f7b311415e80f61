"""A vendor's plugin library in Intarsia's host and in onnxruntime's, in turn: what the host itself costs.

    python benchmarks/plugin_overhead.py FOLDER [MODEL ...]

FOLDER has NAME.onnx and NAME.npz (inputs as in_NAME, as the export of test models writes them). Needs onnxruntime and
onnxruntime-ep-openvino.
On a CPU that is not Intel's the plugin takes no device of onnxruntime's: a small library in between, built with the system's C
compiler, tells it that it is. A plugin knows one host in a process, so that each has its own: they take turns, a few runs each.
Both compute in float32 with one thread.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

INTEL = 0x8086
AT_ONCE = 6  # runs of a host before it is the other's turn
MODELS = ("mlp_tabular", "mobilenet_v2", "bert_base")
CONFIG = json.dumps({"CPU": {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": "1", "NUM_STREAMS": "1"}})
# The table of functions of version 30 or later has some 430 entries; 308 is HardwareDevice_VendorId.
SHIM = """
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
typedef void *(*get_api)(unsigned);
struct base { get_api get; const char *(*version)(void); };
static struct base *host, shown;
static void *table[430];
static unsigned vendor(void *device) { return 0x8086; }
static void *get(unsigned version) {
  void *found = host->get(version);
  if (!found) return 0;
  memcpy(table, found, sizeof table);
  table[308] = (void *)vendor;
  return table;
}
static void *plugin(const char *name) {
  static void *library;
  if (!library) library = dlopen(getenv("INTARSIA_BENCHMARK_PLUGIN"), RTLD_NOW | RTLD_LOCAL);
  return dlsym(library, name);
}
void *CreateEpFactories(const char *name, struct base *base, void *log, void **made, size_t room, size_t *count) {
  host = base;
  shown.get = get;
  shown.version = base->version;
  void *(*create)(const char *, struct base *, void *, void **, size_t, size_t *) = plugin("CreateEpFactories");
  return create(name, &shown, log, made, room, count);
}
void *ReleaseEpFactory(void *factory) { return ((void *(*)(void *))plugin("ReleaseEpFactory"))(factory); }
"""


def plugin_path() -> Path:
    """Where OpenVINO's plugin is installed."""
    spec = importlib.util.find_spec("onnxruntime_ep_openvino")
    if spec is None or not spec.origin:
        sys.exit("needs onnxruntime-ep-openvino: pip install onnxruntime-ep-openvino")
    return next(p for p in sorted(Path(spec.origin).parent.glob("*providers_openvino*")) if p.suffix in (".so", ".dll"))


def onnxruntime_session(folder: Path) -> Callable[[Path], Any]:
    """Makes sessions of onnxruntime with the plugin."""
    import onnxruntime

    source, library = folder / "shim.c", folder / "shim.so"
    source.write_text(SHIM)
    subprocess.run(["cc", "-w", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    os.environ["INTARSIA_BENCHMARK_PLUGIN"] = str(plugin_path())
    onnxruntime.register_execution_provider_library("OpenVINO", str(library))
    devices = [d for d in onnxruntime.get_ep_devices() if d.ep_name == "OpenVINOExecutionProvider"]

    def make(model: Path) -> Any:
        options = onnxruntime.SessionOptions()
        options.add_provider_for_devices(devices[:1], {"load_config": CONFIG})
        return onnxruntime.InferenceSession(str(model), options)

    return make


def intarsia_session() -> Callable[[Path], Any]:
    """Makes sessions of Intarsia with the plugin."""
    import intarsia
    from intarsia.device.hardware.discovery import hardware_devices
    from intarsia.providers.plugin.library import load_library

    providers = load_library("OpenVINO", plugin_path(), hardware_devices()).providers
    provider = next(one for one in providers if one.name == "OpenVINOExecutionProvider")
    options = {
        "intarsia.vendor_id": hex(INTEL),
        "intarsia.device_type": "CPU",
        "intarsia.ep_devices": "0",
        "load_config": CONFIG,
    }
    return lambda model: intarsia.InferenceSession(str(model), providers=[(provider, options), "CPUExecutionProvider"])


def serve(host: str, folder: Path, connection: Any) -> None:
    """A host in a process of its own: makes a session, then runs it as often as it is told and sends seconds of each run."""
    with tempfile.TemporaryDirectory() as build:
        make = onnxruntime_session(Path(build)) if host == "onnxruntime" else intarsia_session()
        for name in iter(connection.recv, None):
            session, data = make(folder / f"{name}.onnx"), np.load(folder / f"{name}.npz")
            feed = {value.name: data[f"in_{value.name}"] for value in session.get_inputs()}
            connection.send(([np.asarray(out) for out in session.run(None, feed)], _placed(session)))
            for count in iter(connection.recv, 0):
                connection.send([_seconds(session, feed) for _ in range(count)])


def _placed(session: Any) -> str:
    return str(dict(session.explain().counts)) if hasattr(session, "explain") else ""


def _seconds(session: Any, feed: dict[str, Any]) -> float:
    begin = time.perf_counter()
    session.run(None, feed)
    return time.perf_counter() - begin


def compared(connections: list[Any], name: str, seconds: float) -> str:
    """The row of a model."""
    for connection in connections:
        connection.send(name)
    (first, _), (second, placed) = (connection.recv() for connection in connections)
    worst = max(float(np.abs(a - b).max()) for a, b in zip(first, second, strict=True))
    found: list[list[float]] = [[], []]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(found[0]) < 4 * AT_ONCE:
        for times, connection in zip(found, connections, strict=True):
            connection.send(AT_ONCE)
            times += connection.recv()[1:]  # the first finds the caches as the other host left them
    for connection in connections:
        connection.send(0)
    a, b = (statistics.median(times) for times in found)
    return f"{name:16} {a * 1e6:9.1f} us {b * 1e6:9.1f} us {b / a:7.3f}  {placed}; results differ by {worst:.2g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args()
    context, connections = multiprocessing.get_context("spawn"), []
    for host in ("onnxruntime", "Intarsia"):
        mine, theirs = context.Pipe()
        context.Process(target=serve, args=(host, given.folder, theirs), daemon=True).start()
        connections.append(mine)
    print(f"{'model':16} {'onnxruntime':>12} {'Intarsia':>12} {'ratio':>7}  nodes by provider in Intarsia")
    for name in given.models:
        print(compared(connections, name, given.seconds))


if __name__ == "__main__":
    main()
