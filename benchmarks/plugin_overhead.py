"""A vendor's plugin library in Intarsia's host and in onnxruntime's, in turn: what the host itself costs.

    python benchmarks/plugin_overhead.py FOLDER [MODEL ...] [--plugin webgpu]

FOLDER has NAME.onnx and NAME.npz (inputs as in_NAME, as the export of test models writes them). Needs onnxruntime and
onnxruntime-ep-openvino, or onnxruntime-ep-webgpu and a Vulkan driver (VK_DRIVER_FILES names SwiftShader's).
On a CPU that is not Intel's OpenVINO's plugin takes no device of onnxruntime's, and WebGPU's none where onnxruntime sees no
GPU: a small library in between, built with the system's C compiler, tells them that it is one. A plugin knows one host in a
process, so that each has its own: they take turns, a few runs each. Both compute in float32, OpenVINO with one thread.
"host" is the least processor time that the calling thread took in a run: less of it is the device's.
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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

INTEL = 0x8086
AT_ONCE = 6  # runs of a host before it is the other's turn
MODELS = ("mlp_tabular", "mobilenet_v2", "bert_base")
CONFIG = json.dumps({"CPU": {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": "1", "NUM_STREAMS": "1"}})
# The table of functions of version 30 or later has some 430 entries: 307 is HardwareDevice_Type, 308 HardwareDevice_VendorId.
SHIM = """
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
typedef void *(*get_api)(unsigned);
struct base { get_api get; const char *(*version)(void); };
static struct base *host, shown;
static void *table[430];
static unsigned told(void *device) { return VALUE; }
static void *get(unsigned version) {
  void *found = host->get(version);
  if (!found) return 0;
  memcpy(table, found, sizeof table);
  table[ENTRY] = (void *)told;
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


@dataclass(frozen=True)
class Plugin:
    """A vendor's plugin. `entry`, `value`: of the table, what is answered instead of the truth."""

    package: str
    provider: str
    entry: int
    value: int
    options: Mapping[str, str]

    @property
    def path(self) -> Path:
        """Where it is installed."""
        spec = importlib.util.find_spec(self.package)
        if spec is None or not spec.origin:
            sys.exit(f"needs {self.package}: pip install {self.package.replace('_', '-')}")
        return next(p for p in sorted(Path(spec.origin).parent.glob("*providers_*")) if p.suffix in (".so", ".dll"))


PLUGINS = {
    "openvino": Plugin("onnxruntime_ep_openvino", "OpenVINOExecutionProvider", 308, INTEL, {"load_config": CONFIG}),
    "webgpu": Plugin("onnxruntime_ep_webgpu", "WebGpuExecutionProvider", 307, 1, {"preferredLayout": "NCHW"}),
}


def onnxruntime_session(plugin: Plugin, folder: Path) -> Callable[[Path], Any]:
    """Makes sessions of onnxruntime with the plugin."""
    import onnxruntime

    source, library = folder / "shim.c", folder / "shim.so"
    source.write_text(f"#define ENTRY {plugin.entry}\n#define VALUE {plugin.value}\n{SHIM}")
    subprocess.run(["cc", "-w", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    os.environ["INTARSIA_BENCHMARK_PLUGIN"] = str(plugin.path)
    onnxruntime.register_execution_provider_library("Plugin", str(library))
    devices = [d for d in onnxruntime.get_ep_devices() if d.ep_name == plugin.provider]

    def make(model: Path) -> Any:
        options = onnxruntime.SessionOptions()
        options.add_provider_for_devices(devices[:1], dict(plugin.options))
        return onnxruntime.InferenceSession(str(model), options)

    return make


def intarsia_session(plugin: Plugin) -> Callable[[Path], Any]:
    """Makes sessions of Intarsia with the plugin."""
    import intarsia
    from intarsia.device.hardware.discovery import hardware_devices
    from intarsia.ep.hardware import HardwareDevice
    from intarsia.providers.plugin.library import load_library

    gpu = plugin.provider.startswith("WebGpu")
    hardware = [HardwareDevice("gpu", "Google", 0x1AE0, 0xC0DE)] if gpu else hardware_devices()
    told = {} if gpu else {"intarsia.vendor_id": hex(INTEL), "intarsia.device_type": "CPU"}
    providers = load_library("Plugin", plugin.path, hardware).providers
    provider = next(one for one in providers if one.name == plugin.provider)
    options = {**told, "intarsia.ep_devices": "0", **plugin.options}
    return lambda model: intarsia.InferenceSession(str(model), providers=[(provider, options), "CPUExecutionProvider"])


def serve(host: str, plugin: Plugin, folder: Path, connection: Any) -> None:
    """A host in a process of its own: makes a session, then runs it as often as it is told and sends seconds of each run."""
    with tempfile.TemporaryDirectory() as build:
        make = onnxruntime_session(plugin, Path(build)) if host == "onnxruntime" else intarsia_session(plugin)
        for name in iter(connection.recv, None):
            session, data = make(folder / f"{name}.onnx"), np.load(folder / f"{name}.npz")
            feed = {value.name: data[f"in_{value.name}"] for value in session.get_inputs()}
            connection.send(([np.asarray(out) for out in session.run(None, feed)], _placed(session)))
            for count in iter(connection.recv, 0):
                connection.send([_seconds(session, feed) for _ in range(count)])


def _placed(session: Any) -> str:
    return str(dict(session.explain().counts)) if hasattr(session, "explain") else ""


def _seconds(session: Any, feed: dict[str, Any]) -> tuple[float, float]:
    """Of a run: in all, and of this thread's processor."""
    begin, worked = time.perf_counter(), time.thread_time()
    session.run(None, feed)
    return time.perf_counter() - begin, time.thread_time() - worked


def compared(connections: list[Any], name: str, seconds: float) -> str:
    """The row of a model."""
    for connection in connections:
        connection.send(name)
    (first, _), (second, placed) = (connection.recv() for connection in connections)
    worst = max(float(np.abs(a - b).max()) for a, b in zip(first, second, strict=True))
    found: list[list[tuple[float, float]]] = [[], []]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(found[0]) < 4 * AT_ONCE:
        for times, connection in zip(found, connections, strict=True):
            connection.send(AT_ONCE)
            times += connection.recv()[1:]  # the first finds the caches as the other host left them
    for connection in connections:
        connection.send(0)
    a, b = (statistics.median(whole for whole, _ in times) for times in found)
    c, d = (min(worked for _, worked in times) for times in found)
    rows = f"{a * 1e6:9.1f} us {b * 1e6:9.1f} us {b / a:7.3f} {c * 1e6:9.1f} us {d * 1e6:9.1f} us {d / c:7.3f}"
    return f"{name:16} {rows}  {placed}; results differ by {worst:.2g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--plugin", choices=PLUGINS, default="openvino")
    given = parser.parse_args()
    context, connections = multiprocessing.get_context("spawn"), []
    for host in ("onnxruntime", "Intarsia"):
        mine, theirs = context.Pipe()
        context.Process(target=serve, args=(host, PLUGINS[given.plugin], given.folder, theirs), daemon=True).start()
        connections.append(mine)
    hosts = f"{'onnxruntime':>12} {'Intarsia':>12} {'ratio':>7}"
    print(f"{'model':16} {hosts} {'host: ort':>12} {'Intarsia':>12} {'ratio':>7}  nodes by provider in Intarsia")
    for name in given.models:
        print(compared(connections, name, given.seconds))


if __name__ == "__main__":
    main()
