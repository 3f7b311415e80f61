#!/usr/bin/env bash
# model-signing 1.1.1 (OpenSSF Model Signing) cannot be imported after `pip install model-signing` alone.
#
# Expected: an installed package imports. Its module model_signing._signing.sign_certificate imports OpenSSL, but pyOpenSSL is
# not among its requirements: it came with sigstore once, which no longer asks for it (here 4.5.1).
# Seen: ModuleNotFoundError: No module named 'OpenSSL'. With pyOpenSSL beside it the import succeeds.
# This fails when that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check model-signing==1.1.1 sigstore==4.5.1
said=$("$folder/env/bin/python" -c "import model_signing" 2>&1 || true)
echo "alone: ${said##*$'\n'}"
[ "${said##*$'\n'}" = "ModuleNotFoundError: No module named 'OpenSSL'" ]
"$folder/env/bin/pip" install --quiet --disable-pip-version-check pyOpenSSL==26.4.0
"$folder/env/bin/python" -c "import model_signing; print('with pyOpenSSL: imported')"
