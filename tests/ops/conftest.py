"""Makes `ml_models`, and the backend suite's cases, importable by the tests of this folder."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "conformance")]
