"""Sessions of onnxruntime with and without IntarsiaCPU, shared by the tests of this folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx.parser

NAME = "IntarsiaCPU"
HEADER = '<ir_version: 9, opset_import: ["" : 19]>'


def model(text: str, header: str = HEADER) -> bytes:
    """A model in onnx's text form."""
    parsed = onnx.parser.parse_model(f"{header} {text}")
    onnx.checker.check_model(parsed)
    return parsed.SerializeToString()


class Sessions:
    def __init__(self, devices: list[Any]) -> None:
        self.devices = devices

    def make(self, source: bytes | str, options: Mapping[str, str] | None = None, threads: int = 0, **entries: str) -> Any:
        """A session with the plugin."""
        import onnxruntime

        settings = onnxruntime.SessionOptions()
        settings.log_severity_level = 4
        settings.intra_op_num_threads = threads
        settings.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        for key, value in entries.items():
            settings.add_session_config_entry(key.replace("__", "."), value)
        settings.add_provider_for_devices(self.devices, dict(options or {}))
        return onnxruntime.InferenceSession(source, settings)

    def alone(self, source: bytes | str) -> Any:
        """A session without it."""
        import onnxruntime

        settings = onnxruntime.SessionOptions()
        settings.log_severity_level = 4
        return onnxruntime.InferenceSession(source, settings, providers=["CPUExecutionProvider"])

    def check(self, source: bytes, feed: Mapping[str, np.ndarray], runs: int = 4) -> Any:
        """Compare several runs on a feed with onnxruntime's own results; the session."""
        session, expected = self.make(source), self.alone(source).run(None, dict(feed))
        for _ in range(runs):
            for got, want in zip(session.run(None, dict(feed)), expected, strict=True):
                assert got.dtype == want.dtype
                np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=1e-5, atol=1e-5)
        return session


def taken(session: Any) -> int:
    """How many nodes of a session's model run on IntarsiaCPU, by onnxruntime's own report."""
    return sum(len(part.get_nodes()) for part in session.get_provider_graph_assignment_info() if part.ep_name == NAME)
