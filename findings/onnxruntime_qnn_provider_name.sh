#!/usr/bin/env bash
# onnxruntime-qnn 2.7.0 calls its provider as its library is registered, and not as the package says.
#
# Expected: the package's get_ep_name() gives "QNNExecutionProvider", and onnxruntime's convention is that devices whose ep_name is
# that are this plugin's, whatever name the library was registered under: so it is with OpenVINO's and WebGPU's plugins. Seen: the
# devices bear the name of the registration, so that a program which registers it as "qnn" and looks for get_ep_name() finds no
# device and takes the machine for one without. Registered as "QNNExecutionProvider" it is found. This fails when that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check onnxruntime==1.32.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet --disable-pip-version-check --no-deps onnxruntime-qnn==2.7.0
"$folder/env/bin/python" - <<'PYTHON'
import onnxruntime
import onnxruntime_qnn

onnxruntime.set_default_logger_severity(4)
for name in ("qnn", onnxruntime_qnn.get_ep_name()):
    before = {device.ep_name for device in onnxruntime.get_ep_devices()}
    onnxruntime.register_execution_provider_library(name, onnxruntime_qnn.get_library_path())
    found = {device.ep_name for device in onnxruntime.get_ep_devices()} - before
    print(f"registered as {name!r}: devices of {sorted(found)}; the package says {onnxruntime_qnn.get_ep_name()!r}")
    assert found == {name}, found
    onnxruntime.unregister_execution_provider_library(name)
PYTHON
