#!/usr/bin/env bash
# model-signing 1.1.1 cannot verify what it signed in shards, unless it is told how the model was hashed.
#
# Expected: verifying takes the way of hashing from the signature, as it does for whole files (its documentation says so).
# The size of a shard comes back from the signed statement as a float (a protobuf Struct knows no integers), and range() refuses.
# Seen: TypeError: 'float' object cannot be interpreted as an integer. With set_hashing_config(... shard_size=64) it verifies.
# This fails when that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check model-signing==1.1.1 sigstore==4.5.1 pyOpenSSL==26.4.0
cd "$folder"
"$folder/env/bin/python" - <<'PROGRAM'
import pathlib

from cryptography.hazmat.primitives import serialization as s
from cryptography.hazmat.primitives.asymmetric import ec
from model_signing import hashing, signing, verifying

here = pathlib.Path.cwd()
key = ec.generate_private_key(ec.SECP256R1())
(here / "key").write_bytes(key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption()))
(here / "pub").write_bytes(key.public_key().public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo))
model = here / "model"
model.mkdir()
(model / "weights.bin").write_bytes(bytes(200))
shards = hashing.Config().use_shard_serialization(shard_size=64)
signing.Config().use_elliptic_key_signer(private_key=here / "key").set_hashing_config(shards).sign(model, here / "sig")


def verify(config):
    try:
        config.use_elliptic_key_verifier(public_key=here / "pub").verify(model, here / "sig")
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "verified"


by_itself = verify(verifying.Config())
told = verify(verifying.Config().set_hashing_config(hashing.Config().use_shard_serialization(shard_size=64)))
print("by itself:", by_itself)
print("told how it was hashed:", told)
assert by_itself == "TypeError: 'float' object cannot be interpreted as an integer", by_itself
assert told == "verified", told
PROGRAM
