#!/usr/bin/env bash
# playwright 1.65.2: wait_for_function works under a content security policy without 'unsafe-eval' where its condition is true
# at once, and fails where it has to wait. A test of such a page passes or fails by how fast the machine is.
#
# A condition that is a text is evaluated once through the debugger, which no policy stops, and from then on inside the page by
# eval, which the policy forbids. `evaluate` in a loop works, and so does a context with bypass_csp, which takes the policy away.
# Needs Chromium (Debian's, for instance).
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || { echo "needs chromium" >&2; exit 2; }
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "playwright==1.65.2"
cat >"$work/page.html" <<'PAGE'
<!doctype html><meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'sha256-HASH'">
<script>SCRIPT</script>
PAGE
"$work/venv/bin/python" - "$work/page.html" "$chromium" <<'PYTHON'
import base64, hashlib, os, pathlib, sys
from playwright.sync_api import Error, sync_playwright

page_file, chromium = pathlib.Path(sys.argv[1]), sys.argv[2]
script = "window.now = true; setTimeout(() => { window.later = true; }, 500);"
digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
page_file.write_text(page_file.read_text().replace("HASH", digest).replace("SCRIPT", script))


def waits(page, condition):
    try:
        page.wait_for_function(condition, timeout=5000)
    except Error as error:
        return "fails: " + ("EvalError" if "EvalError" in str(error) else type(error).__name__)
    return "works"


with sync_playwright() as library:
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    browser = library.chromium.launch(executable_path=chromium, args=arguments)
    page = browser.new_page()
    page.goto(page_file.as_uri())
    found = {"true at once": waits(page, "window.now")}
    page.reload()
    found["true after half a second"] = waits(page, "window.later")
    page.wait_for_timeout(1000)
    found["the same, once it is true"] = waits(page, "window.later")
    context = browser.new_context(bypass_csp=True)
    other = context.new_page()
    other.goto(page_file.as_uri())
    found["without the policy"] = waits(other, "window.later")
    browser.close()
for what, result in found.items():
    print(f"{what}: {result}")
expected = ["works", "fails: EvalError", "works", "works"]
sys.exit(0 if list(found.values()) == expected else 1)
PYTHON
echo "as described"
