"""onnxruntime alone, and with IntarsiaCPU as its plugin, in turn: python benchmarks/onnxruntime_plugin.py FOLDER [MODEL ...]

FOLDER holds models NAME.onnx with NAME.npz, as tests/models/export.py writes them. A ratio above 1: faster with the plugin.
Sessions are made in the same order, with nothing but kernels in the cache. benchmarks/README.md says how it measures.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import intarsia
from intarsia.cli.timing import Runner, interleave
from models import feeds_of, geometric_mean, print_table

NAME = "IntarsiaCPU"


def runner(name: str, model: Path, feeds: dict[str, np.ndarray], threads: int, devices: list[Any]) -> tuple[Runner, Any]:
    """A session, with these devices of plugins or with onnxruntime's own provider alone."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if devices:
        options.add_provider_for_devices(devices, {})
    start = time.perf_counter()
    session = onnxruntime.InferenceSession(str(model), options)
    return Runner(name, lambda: session.run(None, feeds), time.perf_counter() - start), session


def parts(session: Any) -> str:
    """How many nodes each provider has, and in how many parts the plugin's are."""
    found = session.get_provider_graph_assignment_info()
    ours = [len(part.get_nodes()) for part in found if part.ep_name == NAME]
    rest = sum(len(part.get_nodes()) for part in found if part.ep_name != NAME)
    return f"{sum(ours)} in {len(ours)}, {rest} left"


def error(ours: Runner, alone: Runner) -> float:
    """Root mean square of the difference, relative to that of onnxruntime's results, at most."""
    pairs = [(np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in zip(ours.run(), alone.run(), strict=True)]
    return max(float(np.sqrt(np.mean((a - b) ** 2) / max(np.mean(b**2), 1e-30))) for a, b in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure onnxruntime with and without IntarsiaCPU as its plugin.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help="models to measure (default: all in the folder)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=100, help="timed runs of each")
    parser.add_argument("--seconds", type=float, default=20.0, help="per model, about")
    options = parser.parse_args()
    onnxruntime.register_execution_provider_library(NAME, intarsia.plugin_library())
    devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == NAME]
    rows, ratios = [], []
    for model in sorted(m for m in options.folder.glob("*.onnx") if not options.names or m.stem in options.names):
        feeds = feeds_of(model)
        ours, session = runner(NAME, model, feeds, options.threads, devices)
        alone, _ = runner("onnxruntime", model, feeds, options.threads, [])
        wrong, placed = error(ours, alone), parts(session)
        mine, its = (min(t.samples) for t in interleave([ours, alone], options.runs, options.seconds))
        ratios.append(its / mine)
        created = f"{ours.created_s:.1f} / {alone.created_s:.1f}"
        rows.append([model.stem, f"{its:.3f}", f"{mine:.3f}", f"{ratios[-1]:.2f}", f"{wrong:.0e}", placed, created])
        print(*rows[-1], flush=True)
        del ours, alone, session
    rows.append(["geometric mean", "", "", f"{geometric_mean(ratios):.2f}", f"least {min(ratios):.2f}", "", ""])
    columns = ["model", "onnxruntime ms", "with plugin ms", "ratio", "difference", "nodes", "made in s, with / without"]
    print_table(f"onnxruntime {onnxruntime.__version__} and its plugin, best runs, {options.threads} threads", columns, rows)


if __name__ == "__main__":
    main()
