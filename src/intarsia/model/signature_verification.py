"""Signed models: a signature of OpenSSF Model Signing is verified before a byte of the model is parsed.

The package `model-signing` (extra `signing`) verifies the signature and hashes the files. What it verified is a list of files:
the model must be on it, and so must each file of external data that a session reads. Nothing here asks the network, so that
keys and certificates are files; keyless signatures, whose trust is looked up, are not taken.
(Format: https://github.com/sigstore/model-transparency)
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from intarsia.errors import InvalidArgument, InvalidSignature
from intarsia.graph.formats.external_data import ExternalFiles
from intarsia.graph.formats.protobuf_wire import Buffer
from intarsia.model.warm_start import identity
from intarsia.options.session_options import SessionOptions

SIGNATURE, KEY, CERTIFICATES, FOLDER = (
    f"session.{name}" for name in ("signature", "signature_public_key", "signature_certificates", "signature_folder")
)


class SignedFiles:
    """The files that a signature covers, as they were when they were hashed.

    Attributes:
        digest: of the signature itself.
    """

    def __init__(self, signature: str, states: Mapping[Path, tuple[int, ...] | None], digest: str) -> None:
        self.signature, self.states, self.digest = signature, dict(states), digest

    def check(self, path: str | os.PathLike[str], what: str) -> None:
        """Raises InvalidSignature where a file is not covered, or has changed since it was hashed."""
        real = Path(path).resolve()
        if real not in self.states:
            listed = ", ".join(sorted(found.name for found in self.states)[:8])
            raise InvalidSignature(f"{what} is not covered by the signature {self.signature!r}, which covers {listed}")
        if identity(real) != self.states[real]:
            raise InvalidSignature(f"{what} has changed since its signature was verified")


class SignedExternalFiles(ExternalFiles):
    """External data of a signed model.

    Args:
        signed: what the signature covers.
    """

    def __init__(self, *arguments: Any, signed: SignedFiles, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._signed = signed

    def _open(self, where: str, location: str) -> Buffer:
        if self.folder is None:
            return super()._open(where, location)  # which says why there is none
        what, path = f"{where} is in the file {location!r}, which", self.resolved(where, location)
        self._signed.check(path, what)
        data = super()._open(where, location)
        self._signed.check(path, what)
        return data


def verified(source: Any, options: SessionOptions) -> SignedFiles | None:
    """What the signature that `options` name covers; None where they name none.

    Raises:
        InvalidSignature: the signature is not by that key or chain, or what is signed has changed; the model is not covered.
        InvalidArgument: no key, or more than one; the model is no file; `model-signing` is not installed.
    """
    signature = options.config(SIGNATURE)
    if not signature:
        if given := next((key for key in (KEY, CERTIFICATES, FOLDER) if options.config(key)), None):
            raise InvalidArgument(f"{given!r} is set, but {SIGNATURE!r} is not: it names the signature's file")
        return None
    if not isinstance(source, (str, os.PathLike)):
        raise InvalidArgument(f"{SIGNATURE!r}: expected the model as a path, as what is signed are files; got bytes")
    config = _verifier(options)
    try:
        bundle = Path(signature).read_bytes()
    except OSError as error:
        raise InvalidSignature(f"the signature {signature!r} cannot be read: {error.strerror}") from error
    covered, sharded = _covered(bundle, signature)
    model = Path(source)
    if covered == ["."]:  # the model's file alone was signed
        signed, states = model, {model.resolve(): identity(model)}
    else:
        signed = Path(options.config(FOLDER) or model.parent)
        states = {path: identity(path) for path in ((signed / name).resolve() for name in covered)}
    with tempfile.TemporaryDirectory() as folder:  # that the bytes which are verified are those that were read
        copy = Path(folder) / "signature"
        copy.write_bytes(bundle)
        try:
            if sharded is not None:
                config.set_hashing_config(_hashing(sharded, signed))
            else:
                config.set_ignore_unsigned_files(signed is not model)
            config.verify(signed, copy)
        except Exception as error:  # the package has no kind of its own
            raise InvalidSignature(f"{os.fspath(source)}: the signature {signature!r} does not hold: {error}") from error
    found = SignedFiles(signature, states, hashlib.sha256(bundle).hexdigest())
    found.check(model, f"the model {os.fspath(source)!r}")
    return found


def _verifier(options: SessionOptions) -> Any:
    key, chain = options.config(KEY), [path for path in options.config(CERTIFICATES).split(";") if path]
    if bool(key) == bool(chain):
        raise InvalidArgument(f"{SIGNATURE!r}: expected {KEY!r} or {CERTIFICATES!r}, {'not both' if key else 'got neither'}")
    try:
        from model_signing import verifying
    except ImportError as error:
        needs = f"{SIGNATURE!r} needs the package model-signing ({error})"
        raise InvalidArgument(f"{needs}: pip install 'intarsia[signing]'") from error
    config = verifying.Config()
    try:
        return (
            config.use_elliptic_key_verifier(public_key=Path(key))
            if key
            else config.use_certificate_verifier(certificate_chain=[Path(path) for path in chain])
        )
    except (OSError, ValueError, TypeError) as error:
        raise InvalidArgument(f"{KEY if key else CERTIFICATES!r}: the file cannot be used: {error}") from error


def _hashing(serialization: Mapping[str, Any], signed: Path) -> Any:
    """How files were hashed in pieces. Of itself the package (1.1.1) takes their size for a float, which fails; and it cannot
    leave out files that are not signed then."""
    from model_signing import hashing

    config = hashing.Config().use_shard_serialization(
        hashing_algorithm=serialization["hash_type"], shard_size=int(serialization["shard_size"])
    )
    config.add_ignored_paths(model_path=signed, paths=serialization.get("ignore_paths", ()))
    return config


def _covered(bundle: bytes, signature: str) -> tuple[list[str], Mapping[str, Any] | None]:
    """The files that a signature says it covers, and how they were hashed if in pieces. Whether it is true is verified
    afterwards."""
    try:
        statement = json.loads(base64.b64decode(json.loads(bundle)["dsseEnvelope"]["payload"], validate=True))
        names = [entry["name"] for entry in statement["predicate"]["resources"]]
        serialization = statement["predicate"]["serialization"]
        sharded = serialization if serialization["method"] == "shards" else None
        names = [name.rsplit(":", 2)[0] for name in names] if sharded else names  # a piece: weights.bin:0:1000
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidSignature(f"{signature!r} is no signature of a model: {type(error).__name__}: {error}") from error
    if not names or not all(isinstance(name, str) for name in names):
        raise InvalidSignature(f"the signature {signature!r} covers no files")
    return sorted(set(names)), sharded
