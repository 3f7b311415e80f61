"""External data: found, mapped, and never read from outside the model's folder."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from intarsia.errors import ExternalDataError
from intarsia.graph.load import load

TWO_GB = 1 << 31


def external_model(entries: dict[str, str], size: int = 4) -> bytes:
    w = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[size], data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        w.external_data.add(key=key, value=value)
    graph = helper.make_graph(
        [helper.make_node("Identity", ["w"], ["y"])],
        "g",
        [],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [size])],
        [w],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10).SerializeToString()


def write(folder: Path, entries: dict[str, str], data: bytes | None = None) -> Path:
    folder.mkdir(exist_ok=True, parents=True)
    path = folder / "m.onnx"
    path.write_bytes(external_model(entries))
    if data is not None:
        (folder / "w.bin").write_bytes(data)
    return path


WEIGHTS = np.float32([1, 2, 3, 4])


@pytest.mark.parametrize(
    "entries",
    [{}, {"offset": "0", "length": "16"}, {"offset": "8"}, {"offset": "8", "length": "16", "checksum": "not checked"}],
    ids=str,
)
def test_location_offset_length(tmp_path: Path, entries: dict[str, str]) -> None:
    padding = bytes(int(entries.get("offset", "0")))
    path = write(tmp_path, {"location": "w.bin", **entries}, padding + WEIGHTS.tobytes() + b"more")
    found = load(path).constants["w"]
    assert found.source == f"w.bin at byte {len(padding)}"
    np.testing.assert_array_equal(found.numpy(), WEIGHTS)
    assert not found.numpy().flags.writeable


def test_subfolders_and_base_dir(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "w.bin").write_bytes(WEIGHTS.tobytes())
    path = write(tmp_path, {"location": "sub/../sub/w.bin"})
    np.testing.assert_array_equal(load(path).constants["w"].numpy(), WEIGHTS)
    np.testing.assert_array_equal(load(path.read_bytes(), base_dir=tmp_path).constants["w"].numpy(), WEIGHTS)
    np.testing.assert_array_equal(
        load(onnx.load(path, load_external_data=False), base_dir=tmp_path).constants["w"].numpy(), WEIGHTS
    )
    with pytest.raises(ExternalDataError, match=r"'sub/../sub/w\.bin', but the model was given as bytes: pass base_dir"):
        load(path.read_bytes())


@pytest.mark.parametrize("location", ["../w.bin", "sub/../../w.bin", "{absolute}", "/etc/passwd", "..", "\\\\host\\w.bin"])
def test_outside_the_folder(tmp_path: Path, location: str) -> None:
    (tmp_path / "w.bin").write_bytes(WEIGHTS.tobytes())
    location = location.format(absolute=tmp_path / "m" / "w.bin")
    path = write(tmp_path / "m", {"location": location}, WEIGHTS.tobytes())
    with pytest.raises(ExternalDataError, match="leads out of the model's folder") as caught:
        load(path)
    for part in ("tensor 'w'", repr(location), repr(str(tmp_path / "m"))):
        assert part in str(caught.value)


@pytest.mark.skipif(os.name == "nt", reason="symbolic links need rights on Windows")
def test_links_must_stay_inside(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(WEIGHTS.tobytes())
    path = write(tmp_path / "m", {"location": "w.bin"})
    link = tmp_path / "m" / "w.bin"
    link.symlink_to(tmp_path / "secret")
    with pytest.raises(ExternalDataError, match="leads out of the model's folder"):
        load(path)
    link.unlink()
    (tmp_path / "m" / "real").write_bytes(WEIGHTS.tobytes())
    link.symlink_to("real")
    np.testing.assert_array_equal(load(path).constants["w"].numpy(), WEIGHTS)
    link.unlink()
    link.symlink_to("w.bin")
    with pytest.raises(ExternalDataError, match=r"not a valid file name|cannot be read"):
        load(path)


@pytest.mark.skipif(os.name == "nt", reason="symbolic links need rights on Windows")
def test_caches_that_link_model_and_weights_into_one_store(tmp_path: Path) -> None:
    store, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    snapshot.mkdir()
    model = write(store, {"location": "w.bin"}, WEIGHTS.tobytes())
    (store / "w.bin").rename(store / "abc")
    (snapshot / "m.onnx").symlink_to(model)
    (snapshot / "w.bin").symlink_to(store / "abc")
    np.testing.assert_array_equal(load(snapshot / "m.onnx").constants["w"].numpy(), WEIGHTS)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_pipes_are_refused_without_waiting(tmp_path: Path) -> None:
    path = write(tmp_path, {"location": "w.bin"})
    os.mkfifo(tmp_path / "w.bin")
    with pytest.raises(ExternalDataError, match="not a regular file"):
        load(path)


@pytest.mark.parametrize(
    ("entries", "data", "message"),
    [
        ({"location": "w.bin"}, None, r"file 'w\.bin' is missing in folder .*: copy it there"),
        ({"location": "w.bin"}, bytes(12), r"needs bytes 0 to 16 of 'w\.bin' .*, but the file has 12"),
        ({"location": "w.bin"}, b"", "but the file has 0"),
        ({"location": "w.bin", "offset": "8"}, bytes(16), "needs bytes 8 to 24 .* but the file has 16"),
        ({"location": "w.bin", "offset": str((1 << 63) - 1)}, bytes(16), "but the file has 16"),
        ({"location": "w.bin", "length": "12"}, bytes(16), "length is 12 bytes, but its type and shape need 16"),
        ({"location": "w.bin", "offset": "-1"}, bytes(16), "offset is '-1', expected a number of bytes"),
        ({"location": "w.bin", "length": "many"}, bytes(16), "length is 'many', expected a number of bytes"),
        ({"offset": "0"}, bytes(16), "it has no 'location'"),
        ({"location": "a\0b"}, bytes(16), "is not a valid file name"),
        ({"location": "."}, bytes(16), "not a regular file|cannot be read"),
    ],
)
def test_wrong_external_data(tmp_path: Path, entries: dict[str, str], data: bytes | None, message: str) -> None:
    path = write(tmp_path, entries, data)
    with pytest.raises(ExternalDataError, match=message) as caught:
        load(path)
    assert "external data of tensor 'w'" in str(caught.value)


@pytest.mark.parametrize("location", ["//server/share/w.bin", "\\\\server\\share\\w.bin", "\\\\?\\UNC\\server\\share\\w.bin"])
def test_no_other_computer_is_asked_for_weights(tmp_path: Path, location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows would send the user's name and the hash of a password to a server that a model names."""
    path = write(tmp_path, {"location": location})
    resolved = []
    resolve = Path.resolve
    monkeypatch.setattr(Path, "resolve", lambda self, strict=False: resolved.append(str(self)) or resolve(self, strict))
    with pytest.raises(ExternalDataError, match="leads out of the model's folder"):
        load(path)
    assert os.name != "nt" or not any("server" in each for each in resolved)


def test_more_than_2_gb(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(external_model({"location": "w.bin", "offset": "4096"}, size=TWO_GB // 4 + 1))
    with (tmp_path / "w.bin").open("wb") as file:  # sparse: takes no room on the disk
        file.seek(4096 + TWO_GB)
        file.write(np.float32(7).tobytes())
    found = load(path).constants["w"]
    assert found.nbytes == TWO_GB + 4
    assert found.numpy()[-1] == 7
    assert found.numpy()[0] == 0
