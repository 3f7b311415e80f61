"""All that a machine with an NVIDIA GPU has to tell, in one command within some minutes: python benchmarks/on_gpu.py [STEP ...]

    PYTHONPATH=src python3 benchmarks/on_gpu.py --out $OUT               # all steps, eleven minutes
    PYTHONPATH=src python3 benchmarks/on_gpu.py conformance --out $OUT   # one

Nothing is fetched, and nothing has to be installed but what the steps name as missing: this repository's sources are enough.
Every step is a process of its own, with a time limit: one that fails or hangs leaves the others what is left. Steps, in order:

- machine: GPU, driver, versions, what of NVRTC, cuBLASLt and cuDNN is found;
- suite: `python -m intarsia.testing.provider CUDAExecutionProvider` (memory, streams, faults, concurrency, some cases);
- kernels: `gpu.py --device cuda`;
- tensorrt: whether TensorRT or TensorRT for RTX runs on this GPU, right or wrong, and its times beside CUDA's
  (`tensorrt_on_gpu.py`); where neither is installed, or does not know the GPU, it says so in seconds;
- conformance: ONNX's node cases with every node on the GPU, by several processes at a time;
- models: full-size models exported here by PyTorch, and `gpu.py` on each, the most telling ones first, while time is left.

Output is printed as it comes, and kept in FOLDER/STEP.txt with --out; tables are Markdown, ready for docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
PROVIDER = "CUDAExecutionProvider"
GROUPS = os.name == "posix"
MODELS = ("resnet50", "bert_base", "gpt2", "mobilenet_v2", "vit_base", "unet", "efficientnet", "convnext")
MACHINE = """
import importlib.metadata as m, shutil, subprocess, sys
shown = ("nvidia-", "cuda-", "torch", "onnx", "llvmlite", "numpy", "ml_dtypes", "ml-dtypes", "triton")
names = sorted({d.name for d in m.distributions() if d.name.startswith(shown)})
print(sys.version.split()[0], *(f"{p} {m.version(p)}" for p in names), sep="; ")
if shutil.which("nvidia-smi"):
    print(subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem", "--format=csv"],
                         capture_output=True, text=True).stdout)
from intarsia.device import cuda, nvrtc, nvidia_libraries, cublaslt, cudnn
print("compiler:", nvrtc.missing() or f"NVRTC {nvrtc.version()} for {nvrtc.architectures()}")
print("driver:", cuda.missing() or [d.description for d in cuda.devices()])
for wanted in (cublaslt.WANTED, cudnn.WANTED):
    print(f"{wanted.title}:", nvidia_libraries.located(wanted, 13) or "not found")
sys.exit(bool(nvrtc.missing() or cuda.missing()))
"""


def end(process: subprocess.Popen[str]) -> None:
    """With all that it started, which would hold the GPU, and the pipe that is read until nobody has it any more."""
    if GROUPS:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()


class Steps:
    """Processes within a time limit for all.

    Attributes:
        wrong: steps that failed, and how.
    """

    def __init__(self, seconds: float, out: Path | None) -> None:
        self.end, self.out = time.monotonic() + seconds, out
        self.wrong: dict[str, str] = {}
        self.environment = dict(os.environ, PYTHONUNBUFFERED="1", PYTHONPATH=os.pathsep.join(
            filter(None, [str(ROOT / "src"), str(ROOT / "tests" / "models"), os.environ.get("PYTHONPATH", "")])
        ))  # fmt: skip

    @property
    def left(self) -> float:
        return max(self.end - time.monotonic(), 0.0)

    def run(self, step: str, command: Sequence[str], most: float) -> bool:
        """Whether the command ended well in so many seconds."""
        limit = max(min(most, self.left), 1.0)
        print(f"\n## {step} ({limit:.0f} s at most)\n", flush=True)
        begin = time.monotonic()
        with self._log(step) as log:
            process = subprocess.Popen(
                [sys.executable, *command], env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                process_group=0 if GROUPS else None,
            )  # fmt: skip
            try:
                text, _ = process.communicate(timeout=limit)
                status = f"ended with {process.returncode}" if process.returncode else ""
            except subprocess.TimeoutExpired:
                end(process)
                text, _ = process.communicate()
                status = f"did not end within {limit:.0f} s"
            except BaseException:
                end(process)
                raise
            log.write(text)
        print(text, flush=True)
        print(f"[{step}: {time.monotonic() - begin:.0f} s{', ' + status if status else ''}]", flush=True)
        if status:
            self.wrong[step] = status
        return not status

    def _log(self, step: str):  # type: ignore[no-untyped-def]
        return (self.out / f"{step}.txt").open("a", encoding="utf-8") if self.out else tempfile.TemporaryFile("w+")


def cases_of(share: int, shares: int, provider: str) -> Iterator[tuple[str, str, str]]:
    """Case, outcome ("right", "refused", "wrong") and why, of every such case of a share."""
    import intarsia
    from intarsia.testing.cases import cases, run_case

    options = intarsia.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    for name in sorted(n for n, c in cases().items() if c.kind == "node")[share::shares]:
        try:
            _, wrong = run_case(cases()[name], [provider], options)
            yield name, "wrong" if wrong else "right", str(wrong) if wrong else ""
        except intarsia.NotImplemented as error:
            yield name, "refused", str(error)
        except Exception as error:  # noqa: BLE001 - a case that fails in whatever way is a finding, not the end
            yield name, "wrong", f"{type(error).__name__}: {error}"


def conformance(provider: str, processes: int, seconds: float) -> int:
    """All shares side by side; prints what is wrong. Returns the exit status."""
    command = [sys.executable, str(Path(__file__)), "conformance", "--provider", provider, "--share"]
    running = [
        subprocess.Popen([*command, str(i), str(processes)], stdout=subprocess.PIPE, text=True) for i in range(processes)
    ]
    end = time.monotonic() + seconds
    found: dict[str, tuple[str, str]] = {}
    unfinished = 0
    for process in running:
        try:
            text, _ = process.communicate(timeout=max(end - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            process.kill()
            text, _ = process.communicate()
        unfinished += process.returncode != 0
        for line in text.splitlines():
            if line.startswith("["):
                name, outcome, why = json.loads(line)
                found[name] = (outcome, why)
    counts = {o: sum(outcome == o for outcome, _ in found.values()) for o in ("right", "refused", "wrong")}
    for name, (outcome, why) in sorted(found.items()):
        if outcome == "wrong":
            print(f"{name}: {why.splitlines()[0][:200]}")
    print(f"{provider}: {len(found)} node cases with every node there: {counts}"
          + (f"; {unfinished} of {processes} processes did not finish" if unfinished else ""))  # fmt: skip
    return int(bool(unfinished or counts["wrong"] or not found))


def models(steps: Steps, names: Sequence[str]) -> None:
    """Export and measure, one model after the other."""
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            if steps.left < 60:
                print(f"\n{name}: no time left", flush=True)
                continue
            export = [str(ROOT / "tests" / "models" / "export.py"), folder, name, "--size", "full"]
            if steps.run(f"export-{name}", export, 90):
                steps.run(f"models-{name}", [str(HERE / "gpu.py"), folder, name, "--runs", "30", "--seconds", "2"], 150)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="*", metavar="STEP", help="one or more of those above; all if none")
    parser.add_argument("--minutes", type=float, default=11, help="for all steps together")
    parser.add_argument("--out", type=Path, help="a folder for what the steps print")
    parser.add_argument("--models", default=",".join(MODELS), help="by their names in tests/models/export.py")
    parser.add_argument("--provider", default=PROVIDER, help="of the steps suite and conformance")
    parser.add_argument("--processes", type=int, default=min(os.cpu_count() or 1, 16), help="of the step conformance")
    parser.add_argument("--share", type=int, nargs=2, metavar=("I", "N"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.share:
        for row in cases_of(*given.share, given.provider):
            print(json.dumps(row), flush=True)
        return 0
    known = ("machine", "suite", "conformance", "kernels", "tensorrt", "models")
    if unknown := set(given.steps) - set(known):
        parser.error(f"unknown {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if given.steps == ["conformance"]:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
        return conformance(given.provider, given.processes, 60 * given.minutes)
    chosen = given.steps or known
    steps = Steps(60 * given.minutes, given.out)
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
    if "machine" in chosen and not steps.run("machine", ["-c", MACHINE], 60):
        print("\nno GPU that CUDAExecutionProvider can use: the other steps are left out")
        return 1
    if "suite" in chosen:
        steps.run("suite", ["-m", "intarsia.testing.provider", given.provider], 90)
    if "kernels" in chosen:
        steps.run("kernels", [str(HERE / "gpu.py"), "--device", "cuda"], 150)
    if "conformance" in chosen:
        limit = str(min(steps.left, 200) / 60)
        step = [str(Path(__file__)), "conformance", "--provider", given.provider, "--processes", str(given.processes)]
        steps.run("conformance", [*step, "--minutes", limit], 215)
    if "tensorrt" in chosen:
        seconds = min(steps.left, 100)
        steps.run("tensorrt", [str(HERE / "tensorrt_on_gpu.py"), "--seconds", str(0.8 * seconds)], seconds)
    if "models" in chosen:
        models(steps, [n for n in given.models.split(",") if n])
    print("\n" + ("; ".join(f"{step} {how}" for step, how in steps.wrong.items()) or "every step ended well"))
    return int(bool(steps.wrong))


if __name__ == "__main__":
    sys.exit(main())
