"""ONNX's node cases, or exported models, with every node on Direct3D 12; run by scripts/direct3d.

    direct3d_cases.py nodes [--every N] [NAME ...]   # one in N, or those named; with the reasons of what is refused
    direct3d_cases.py models FOLDER [NAME ...]       # of tests/models/export.py: NAME.onnx, and NAME.npz with torch's results

Exit status 1: a result is wrong, a refusal has no reason, or fewer cases than LEAST run with every node on the device.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

import intarsia
from intarsia.testing.cases import cases, run_case, sample

PROVIDER = "DmlExecutionProvider"
LEAST = 0.90  # of the node cases, right with every node on the device
TOLERANCE = 1e-4  # of torch's largest output


def alone() -> intarsia.SessionOptions:
    """Every node on the device, or an error with the reasons."""
    options = intarsia.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return options


def outcome(name: str) -> tuple[str, str]:
    """ "right", "refused" with the reason of the first node, or "wrong" with what is wrong."""
    try:
        session, wrong = run_case(cases()[name], [PROVIDER], alone())
    except intarsia.NotImplemented as error:
        _, named, reason = str(error).partition(f"{PROVIDER}: ")
        return ("refused", reason.split("\n")[0]) if named and reason.strip() else ("wrong", f"no reason: {error}")
    except Exception as error:  # noqa: BLE001 # whatever it is, it is the case's outcome
        return "wrong", f"{type(error).__name__}: {error}"
    elsewhere = set(session.explain().counts) - {PROVIDER, "folded"}
    return ("wrong", wrong or f"nodes on {sorted(elsewhere)}") if wrong or elsewhere else ("right", "")


def nodes(every: int, names: list[str]) -> int:
    chosen = names or [n for n in (sample(every) if every > 1 else cases()) if cases()[n].kind == "node"]
    start, counts, reasons = time.perf_counter(), Counter[str](), Counter[str]()
    for name in chosen:
        kind, why = outcome(name)
        counts[kind] += 1
        if kind == "refused":
            reasons[why] += 1
        if kind == "wrong" or names:
            print(f"{kind} {name}: {why}", flush=True)
    for why, count in reasons.most_common():
        print(f"{count} x {why}")
    took = time.perf_counter() - start
    print(f"Direct3D 12: of {len(chosen)} node cases {dict(counts)}, in {took:.0f} s", flush=True)
    return int(bool(counts["wrong"]) or counts["right"] < LEAST * len(chosen) and not names)


def models(folder: Path, names: list[str]) -> int:
    failed = 0
    found = sorted(p for p in folder.glob("*.onnx") if not names or p.stem in names)
    for path in found:
        with np.load(path.with_suffix(".npz")) as given:
            arrays = dict(given)
        start = time.perf_counter()
        session = intarsia.InferenceSession(path, alone(), providers=[PROVIDER])
        outputs = session.run(None, {k.removeprefix("in_"): v for k, v in arrays.items() if k.startswith("in_")})
        first = time.perf_counter() - start
        pairs = [(y.astype(np.float64), arrays[f"out_{i}"]) for i, y in enumerate(outputs)]
        error = max(float(np.abs(y - wanted).max() / np.abs(wanted).max()) for y, wanted in pairs)
        failed += error >= TOLERANCE
        count = sum(session.explain().counts.values())
        print(f"{path.stem}: {count} nodes, {error:.1e} of torch's largest, {first:.1f} s", flush=True)
    print(f"Direct3D 12: {len(found) - failed} of {len(found)} models right")
    return int(failed > 0 or not found)


def main() -> None:
    parser = argparse.ArgumentParser(description="Run cases with every node on Direct3D 12.")
    kinds = parser.add_subparsers(dest="kind", required=True)
    of_nodes = kinds.add_parser("nodes")
    of_nodes.add_argument("--every", type=int, default=1)
    of_nodes.add_argument("names", nargs="*")
    of_models = kinds.add_parser("models")
    of_models.add_argument("folder", type=Path)
    of_models.add_argument("names", nargs="*")
    given = parser.parse_args()
    sys.exit(nodes(given.every, given.names) if given.kind == "nodes" else models(given.folder, given.names))


if __name__ == "__main__":
    main()
