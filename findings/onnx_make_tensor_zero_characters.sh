#!/usr/bin/env bash
# onnx 1.23.2: helper.make_tensor drops zero characters at the ends of strings; numpy_helper.from_array keeps them.
#
# Expected: string_data holds the strings that were given, as it does for every other character and for lists of attributes
# (make_attribute, make_node(keys_strings=...)).
# Seen: make_tensor("t", STRING, [3], ["", "\0", "a\0"]) holds "", "", "a", since its values go through NumPy's own type of
# strings. Keys of a vocabulary of characters or bytes, whose first entry is often "\0", become other keys or twice the same:
# keys_tensor of a LabelEncoder (ai.onnx.ml 4) made so looks up "" where the vocabulary has "\0".
# This fails when that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check onnx==1.23.2 numpy==2.4.6
"$folder/env/bin/python" - <<'PROGRAM'
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

words = ["", "\0", "a\0", "a\0b"]
made = list(helper.make_tensor("t", TensorProto.STRING, [4], words).string_data)
kept = list(numpy_helper.from_array(np.array(words, object)).string_data)
attribute = list(helper.make_node("LabelEncoder", ["x"], ["y"], keys_strings=words).attribute[0].strings)
print("onnx", onnx.__version__)
print("make_tensor:", made)
print("from_array: ", kept)
print("make_node:  ", attribute)
assert kept == attribute == [b"", b"\0", b"a\0", b"a\0b"]
assert made == [b"", b"", b"a", b"a\0b"], made
PROGRAM
