"""Signed models: what was signed is what is read, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import intarsia as ort
from intarsia.errors import ExternalDataError, InvalidArgument, InvalidSignature

pytest.importorskip("model_signing", reason="signatures need the extra 'signing'")

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from model_signing import hashing, signing

Signed = Callable[..., Path]


def key_pair(folder: Path, name: str) -> tuple[Path, Path]:
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    key = ec.generate_private_key(ec.SECP256R1())
    plain = serialization.NoEncryption()
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    kind = serialization.PublicFormat.SubjectPublicKeyInfo
    public.write_bytes(key.public_key().public_bytes(serialization.Encoding.PEM, kind))
    return private, public


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """y = x + w, with w in a file beside it; what is signed is the folder "model" with it."""
    graph = onnx.parser.parse_graph("g (float[2] x) => (float[2] y) { y = Add(x, w) }")
    graph.initializer.append(numpy_helper.from_array(np.ones(2, np.float32), "w"))
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    path = tmp_path / "model" / "m.onnx"
    path.parent.mkdir()
    onnx.save(proto, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    return path


@pytest.fixture
def key(tmp_path: Path) -> tuple[Path, Path]:
    return key_pair(tmp_path, "key")


def signature_of(what: Path, place: Path, private: Path, ignored: tuple[Path, ...] = (), shards: int = 0) -> Path:
    config = hashing.Config()
    if shards:
        config.use_shard_serialization(shard_size=shards)
    config.set_ignored_paths(paths=[place, *ignored], ignore_git_paths=False)
    signing.Config().use_elliptic_key_signer(private_key=private).set_hashing_config(config).sign(what, place)
    return place


def options(signature: Path, public: Path | None, **more: Any) -> ort.SessionOptions:
    made = ort.SessionOptions()
    made.add_session_config_entry("session.signature", str(signature))
    if public is not None:
        made.add_session_config_entry("session.signature_public_key", str(public))
    for name, value in more.items():
        made.add_session_config_entry(f"session.signature_{name}", str(value))
    return made


def add(path: Any, made: ort.SessionOptions) -> list[float]:
    (y,) = ort.InferenceSession(path, made).run(None, {"x": np.array([1, 2], np.float32)})
    found: list[float] = y.tolist()
    return found


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("shards", [0, 64])
def test_a_folder(model: Path, key: tuple[Path, Path], tmp_path: Path, inside: bool, shards: int) -> None:
    place = (model.parent if inside else tmp_path) / "model.sig"
    signature = signature_of(model.parent, place, key[0], shards=shards)
    for source in (model, str(model)):
        assert add(source, options(signature, key[1])) == [2, 3]
    made = options(signature, key[1])
    made.untrusted = True
    assert add(model, made) == [2, 3]  # external data that is signed is read
    (model.parent / "w.bin").write_bytes(np.float32([5, 5]).tobytes())
    with pytest.raises(InvalidSignature, match=r"m\.onnx: the signature .*model\.sig' does not hold: .*w\.bin"):
        add(model, options(signature, key[1]))


def test_a_file_that_was_not_signed(model: Path, key: tuple[Path, Path], tmp_path: Path) -> None:
    """Files beside the signed ones do not count, unless the model reads them."""
    weights = model.parent / "w.bin"
    signature = signature_of(model.parent, tmp_path / "s.sig", key[0], ignored=(weights,))
    (model.parent / "README.md").write_text("new")
    message = r"'w'.* is in the file 'w\.bin', which is not covered by the signature .* covers m\.onnx"
    with pytest.raises(InvalidSignature, match=message):
        add(model, options(signature, key[1]))
    other = model.with_name("other.onnx")
    other.write_bytes(model.read_bytes())
    with pytest.raises(InvalidSignature, match=r"the model .*other\.onnx' is not covered by the signature"):
        add(other, options(signature, key[1]))


def test_one_file(key: tuple[Path, Path], tmp_path: Path, model: Path) -> None:
    alone = tmp_path / "alone.onnx"
    proto = onnx.load(model)
    onnx.save(proto, alone)
    signature = signature_of(alone, tmp_path / "alone.sig", key[0])
    assert add(alone, options(signature, key[1])) == [2, 3]
    with pytest.raises(InvalidSignature, match=r"is not covered by the signature .* covers m\.onnx"):
        add(model, options(signature_of(model, tmp_path / "m.sig", key[0]), key[1]))
    alone.write_bytes(alone.read_bytes() + b"\0")
    with pytest.raises(InvalidSignature, match="does not hold"):
        add(alone, options(signature, key[1]))


def test_a_folder_above(model: Path, key: tuple[Path, Path], tmp_path: Path) -> None:
    inner = model.parent / "onnx"
    inner.mkdir()
    for name in ("m.onnx", "w.bin"):
        (model.parent / name).rename(inner / name)
    signature = signature_of(model.parent, tmp_path / "s.sig", key[0])
    assert add(inner / "m.onnx", options(signature, key[1], folder=model.parent)) == [2, 3]
    with pytest.raises(InvalidSignature, match="does not hold"):
        add(inner / "m.onnx", options(signature, key[1]))


def test_the_key_of_another(model: Path, key: tuple[Path, Path], tmp_path: Path) -> None:
    signature = signature_of(model.parent, tmp_path / "s.sig", key[0])
    _, other = key_pair(tmp_path, "other")
    with pytest.raises(InvalidSignature, match="does not hold"):
        add(model, options(signature, other))


def test_nothing_is_parsed_before(key: tuple[Path, Path], tmp_path: Path) -> None:
    """What is no model at all: its signature is the first that is said of it."""
    path = tmp_path / "m.onnx"
    path.write_bytes(b"no model")
    signature = signature_of(path, tmp_path / "s.sig", key[0])
    path.write_bytes(b"none either")
    with pytest.raises(InvalidSignature, match="does not hold"):
        add(path, options(signature, key[1]))


def test_a_session_from_the_cache_is_verified(
    model: Path, key: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTARSIA_PROGRAM_CACHE", "1")
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
    signature = signature_of(model.parent, tmp_path / "s.sig", key[0])
    for _ in range(3):
        assert add(model, options(signature, key[1])) == [2, 3]
    _, other = key_pair(tmp_path, "other")
    with pytest.raises(InvalidSignature):
        add(model, options(signature, other))


def test_arguments(model: Path, key: tuple[Path, Path], tmp_path: Path) -> None:
    signature = signature_of(model.parent, tmp_path / "s.sig", key[0])
    with pytest.raises(InvalidArgument, match=r"expected the model as a path.* got bytes"):
        add(model.read_bytes(), options(signature, key[1]))
    with pytest.raises(InvalidArgument, match=r"expected 'session\.signature_public_key' or .*, got neither"):
        add(model, options(signature, None))
    with pytest.raises(InvalidArgument, match="not both"):
        add(model, options(signature, key[1], certificates="c.pem"))
    with pytest.raises(InvalidArgument, match=r"'session\.signature_public_key': the file cannot be used"):
        add(model, options(signature, tmp_path / "none.pub"))
    with pytest.raises(InvalidSignature, match="cannot be read: No such file"):
        add(model, options(tmp_path / "none.sig", key[1]))
    for text in (b"", b"{}", b"[]", b'{"dsseEnvelope": {"payload": "!"}}', b'{"dsseEnvelope": {"payload": "e30="}}'):
        (tmp_path / "wrong.sig").write_bytes(text)
        with pytest.raises(InvalidSignature, match="is no signature of a model"):
            add(model, options(tmp_path / "wrong.sig", key[1]))
    alone = ort.SessionOptions()
    alone.add_session_config_entry("session.signature_public_key", str(key[1]))
    with pytest.raises(InvalidArgument, match=r"'session\.signature_public_key' is set, but 'session\.signature' is not"):
        add(model, alone)


def test_external_data_elsewhere(model: Path, key: tuple[Path, Path], tmp_path: Path) -> None:
    """The checks of locations come first."""
    proto = onnx.load(model, load_external_data=False)
    proto.graph.initializer[0].external_data[0].value = "../w.bin"
    model.write_bytes(proto.SerializeToString())
    signature = signature_of(model.parent, tmp_path / "s.sig", key[0])
    with pytest.raises(ExternalDataError):
        add(model, options(signature, key[1]))
