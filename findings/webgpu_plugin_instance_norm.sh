#!/usr/bin/env bash
# onnxruntime-ep-webgpu 0.4.0 in onnxruntime 1.32: two sessions with InstanceNormalization share a shader that has the first one's
# epsilon.
#
# Expected: each node normalises with its own epsilon. Seen: while a session with epsilon 1e-5 lives, one with epsilon 0.5 divides
# by the square root of variance + 1e-5. A session alone is right, so that tests of one model do not see it.
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
values = [oh.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", [1, 2, 8]), ("s", [2]), ("b", [2]))]


def session(epsilon):
    node = oh.make_node("InstanceNormalization", ["x", "s", "b"], ["y"], epsilon=epsilon)
    graph = oh.make_graph([node], "g", values, [oh.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2, 8])])
    options = ort.SessionOptions()
    options.add_provider_for_devices([device], {})
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8)
    return ort.InferenceSession(model.SerializeToString(), options)


x = np.random.default_rng(0).normal(size=(1, 2, 8)).astype(np.float32)
feed = {"x": x, "s": np.ones(2, np.float32), "b": np.zeros(2, np.float32)}
right = (x - x.mean(2, keepdims=True)) / np.sqrt(x.var(2, keepdims=True) + 0.5)


def error(found):
    return float(np.abs(found.run(None, feed)[0] - right).max())


alone = error(session(0.5))
first = session(1e-5)
first.run(None, feed)
beside = error(session(0.5))
print(f"epsilon 0.5: error {alone:.2g} alone, {beside:.2g} beside a session with epsilon 1e-5")
assert alone < 1e-5 < 0.1 < beside, (alone, beside)
PROGRAM
