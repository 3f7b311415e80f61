"""ONNX's backend suite through `intarsia.backend`, as the ONNX Backend Scoreboard runs it: counts, and the cases that fail.

    python tests/conformance/scoreboard/run_suite.py [--real-models] [PATTERN ...]

It uses onnx's own runner and bounds, with nothing left out; `tests/conformance/test_onnx_backend.py` is the test of the same
cases, by bounds of its own for random numbers. Cases of whole models are downloaded by onnx, so they are run on request.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
import time
import unittest
from collections.abc import Iterator, Sequence
from typing import Any


def cases(real_models: bool) -> Iterator[unittest.TestCase]:
    """The cases for the device "CPU", as unittest's."""
    import onnx.backend.test

    import intarsia.backend.backend as backend

    for kind, tests in onnx.backend.test.BackendTest(backend.IntarsiaBackend, __name__).test_cases.items():
        if kind.endswith("RealModelTest") and not real_models:
            continue
        yield from (tests(name) for name in unittest.TestLoader().getTestCaseNames(tests) if name.endswith("_cpu"))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", nargs="*", default=["*"], help="names of cases, such as 'test_conv*'")
    parser.add_argument("--real-models", action="store_true", help="whole models too, which onnx downloads")
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    result: Any = unittest.TestResult()
    for case in cases(options.real_models):
        if any(fnmatch.fnmatch(case._testMethodName, pattern) for pattern in options.patterns):
            case.run(result)
    wrong = {case._testMethodName: why.strip().splitlines()[-1] for case, why in (*result.failures, *result.errors)}
    for name, why in sorted(wrong.items()):
        print(f"failed   {name}: {why[:200]}")
    for case, why in result.skipped:
        print(f"skipped  {case._testMethodName}: {why[:200]}")
    passed = result.testsRun - len(wrong) - len(result.skipped)
    counts = f"{passed} passed, {len(wrong)} failed, {len(result.skipped)} skipped"
    print(f"{result.testsRun} cases in {time.perf_counter() - start:.0f} s: {counts}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
