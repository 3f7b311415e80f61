#!/usr/bin/env bash
# onnxruntime-ep-webgpu 0.4.0 in onnxruntime 1.32: it takes MaxPool with its output of indices, and then fails in a run.
#
# Expected: a node that it cannot run is left to the CPU when the session is made, as others are. Seen: its kernel is registered for
# the type of the indices, the session is made, and each run ends in an error; the CPU runs the same model.
# Runs on SwiftShader, the Vulkan driver of Debian's Chromium; onnxruntime sees no GPU there, and a small library in between tells
# the plugin that the CPU is one. Needs Debian's apt and cc. This fails when that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check onnxruntime==1.32.0 onnxruntime-ep-webgpu==0.4.0 onnx==1.23.2 numpy==2.4.6
cd "$folder"
apt-get download -qq chromium-common >&2
dpkg-deb -x chromium-common_*.deb driver
cat > shim.c <<'SHIM'
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
struct base { void *(*get)(unsigned); const char *(*version)(void); };
static struct base *host, shown;
static void *table[430];
static int gpu(void *device) { return 1; }
static void *get(unsigned version) {
  void *found = host->get(version);
  if (!found) return 0;
  memcpy(table, found, sizeof table);
  table[307] = (void *)gpu; /* HardwareDevice_Type */
  return table;
}
static void *plugin(const char *name) {
  static void *library;
  if (!library) library = dlopen(getenv("PLUGIN"), RTLD_NOW | RTLD_LOCAL);
  return dlsym(library, name);
}
void *CreateEpFactories(const char *name, struct base *base, void *log, void **made, size_t room, size_t *count) {
  host = base, shown.get = get, shown.version = base->version;
  void *(*create)(const char *, struct base *, void *, void **, size_t, size_t *) = plugin("CreateEpFactories");
  return create(name, &shown, log, made, room, count);
}
void *ReleaseEpFactory(void *factory) { return ((void *(*)(void *))plugin("ReleaseEpFactory"))(factory); }
SHIM
cc -w -shared -fPIC -o shim.so shim.c -ldl
PLUGIN=$(echo "$folder"/env/lib/python3*/site-packages/onnxruntime_ep_webgpu/libonnxruntime_providers_webgpu.so)
export PLUGIN VK_DRIVER_FILES=$folder/driver/usr/lib/chromium/vk_swiftshader_icd.json XDG_RUNTIME_DIR=$folder
"$folder/env/bin/python" - "$folder/shim.so" <<'PROGRAM'
import sys

import numpy as np
import onnx.helper as oh
import onnxruntime as ort
from onnx import TensorProto

ort.register_execution_provider_library("WebGPU", sys.argv[1])
device = next(d for d in ort.get_ep_devices() if d.ep_name == "WebGpuExecutionProvider")
shapes = {"x": (TensorProto.FLOAT, [1, 1, 4, 4]), "y": (TensorProto.FLOAT, [1, 1, 2, 2]), "i": (TensorProto.INT64, [1, 1, 2, 2])}
values = [oh.make_tensor_value_info(name, *shape) for name, shape in shapes.items()]
node = oh.make_node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2, 2], strides=[2, 2])
graph = oh.make_graph([node], "g", values[:1], values[1:])
model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 13)], ir_version=8).SerializeToString()
options = ort.SessionOptions()
options.add_provider_for_devices([device], {})
feed = {"x": np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)}
print("CPU:", ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feed)[1].ravel())
session = ort.InferenceSession(model, options)
try:
    session.run(None, feed)
except Exception as error:
    said = str(error)
else:
    sys.exit("it ran")
print("WebGPU:", said)
assert "Indices output is not supported" in said, said
PROGRAM
