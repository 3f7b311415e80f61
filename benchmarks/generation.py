"""Text generation as programs run it, beside onnxruntime and OpenVINO: python benchmarks/generation.py FOLDER [NAME ...]

    python benchmarks/generation.py build/generation 'gpt2*' --threads 1 --batch 4 --by run,iobinding --steps 128
    python benchmarks/generation.py build/generation fused_small --by shared      # caches of one length, written in place
    python benchmarks/generation.py build/generation gpt2_small --what memory     # processes of their own, peaks
    python benchmarks/generation.py build/generation llama_small --what prompts   # prompts of random lengths in one session

What a step gives is what the next one takes: each runtime has its own caches, made by its own steps. Runtimes take turns of a
few steps at equal lengths. The table has tokens a second of processor time (of the whole process, median of steps) and of the
clock, and the median ratio of turns.

`--by`: `run` (arrays), `values` (run_with_ort_values), `iobinding` (outputs bound to the CPU, taken as OrtValues and bound as
inputs), `shared` (past and present bound to one buffer of the greatest length). OpenVINO runs as a stateless model whose two
requests take turns, inputs and outputs shared.
"""

from __future__ import annotations

import argparse
import fnmatch
import gc
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

os.environ.setdefault("INTARSIA_COMPILE_IN_BACKGROUND", "0")  # what is timed are kernels compiled for the model

TURN = 8  # steps
FRAMES = 400  # of an encoder
LONGEST = 2048  # tokens of a cache that has one length, as `generation_models` has it
TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int64)": np.int64, "tensor(bool)": np.bool_}


class Inputs:
    """What a model's inputs are, by onnxruntime's description of them, and arrays for them."""

    def __init__(self, arguments: Any, batch: int, shared: bool) -> None:
        self.kinds = {a.name: (TYPES[a.type], list(a.shape)) for a in arguments}
        self.batch, self.shared = batch, shared
        self.pasts = [n for n in self.kinds if n.startswith("past")]
        self.room = LONGEST if shared else 0
        self.random = np.random.default_rng(0)
        self.states: dict[str, np.ndarray] = {}
        for name, (_, shape) in self.kinds.items():
            if name == "encoder_hidden_states":
                self.states[name] = self.random.standard_normal((batch, FRAMES, shape[2])).astype(np.float32)
            elif name == "encoder_attention_mask":
                self.states[name] = np.ones((batch, FRAMES), np.int64)

    def empty(self) -> dict[str, np.ndarray]:
        """Caches before the first token."""
        found = {}
        for name in self.pasts:
            kind, shape = self.kinds[name]
            length = shape[2] if isinstance(shape[2], int) else self.room
            found[name] = np.zeros((self.batch, shape[1], length, shape[3]), kind)
        return found

    def tokens(self, length: int) -> np.ndarray:
        return self.random.integers(5, 1990, (self.batch, length))

    def step(self, ids: np.ndarray, past: int) -> dict[str, np.ndarray]:
        """All but the caches, for these tokens behind `past` ones."""
        length = ids.shape[1]
        made = {
            "input_ids": lambda: ids,
            "attention_mask": lambda: np.ones((self.batch, past + length), np.int64),
            "position_ids": lambda: np.arange(past, past + length)[None].repeat(self.batch, 0),
            "cache_position": lambda: np.arange(past, past + length),
            "beam_idx": np.arange(self.batch)[::-1].copy,
            "use_cache_branch": lambda: np.array([past > 0]),
        }
        return {n: made[n]() for n in self.kinds if n in made} | self.states


class Generator:
    """One runtime's session with its caches; `step` runs the model on tokens and answers logits, times and all."""

    def __init__(self, session: Any, outputs: list[str], inputs: Inputs) -> None:
        self.session, self.inputs, self.outputs, self.past = session, inputs, outputs, 0
        self.caches: dict[str, Any] = {}
        self.wall: list[float] = []
        self.busy: list[float] = []
        self.reset()

    def reset(self) -> None:
        self.past, self.caches = 0, self.inputs.empty()

    def step(self, ids: np.ndarray) -> Any:
        feed = self.inputs.step(ids, self.past)
        begun, start = time.process_time(), time.perf_counter()
        logits = self.run(feed)
        self.wall.append(time.perf_counter() - start)
        self.busy.append(time.process_time() - begun)
        self.past += ids.shape[1]
        return logits

    def run(self, feed: dict[str, np.ndarray]) -> Any:
        results = self.session.run(None, feed | self.caches)
        found = dict(zip(self.outputs, results, strict=True))
        self.keep(found)
        return found["logits"]

    def keep(self, found: dict[str, Any]) -> None:
        """Presents become pasts; what belongs to an encoder and comes out empty stays as it was."""
        for name in self.inputs.pasts:
            value = found[name.replace("past", "present")]
            shape = value.shape() if callable(value.shape) else value.shape
            if self.past == 0 or "encoder" not in name or shape[2]:
                self.caches[name] = value


class ByValues(Generator):
    def __init__(self, module: Any, *given: Any) -> None:
        self.value = module.OrtValue.ortvalue_from_numpy
        super().__init__(*given)

    def reset(self) -> None:
        super().reset()
        self.caches = {n: self.value(x) for n, x in self.caches.items()}

    def run(self, feed: dict[str, np.ndarray]) -> Any:
        given = {n: self.value(x) for n, x in feed.items()}
        results = self.session.run_with_ort_values(self.outputs, given | self.caches)
        found = dict(zip(self.outputs, results, strict=True))
        self.keep(found)
        return found["logits"].numpy()


class ByBinding(ByValues):
    def reset(self) -> None:
        super().reset()
        self.binding = self.session.io_binding()

    def run(self, feed: dict[str, np.ndarray]) -> Any:
        binding = self.binding
        for name, array in feed.items():
            binding.bind_cpu_input(name, array)
        for name, value in self.caches.items():
            binding.bind_ortvalue_input(name, value)
        for name in self.outputs:
            binding.bind_output(name, "cpu")
        self.session.run_with_iobinding(binding)
        found = dict(zip(self.outputs, binding.get_outputs(), strict=True))
        self.keep(found)
        return found["logits"].numpy()


class ByShared(ByValues):
    """Every present is written where its past lies."""

    def run(self, feed: dict[str, np.ndarray]) -> Any:
        binding = self.session.io_binding()
        for name, array in feed.items():
            binding.bind_cpu_input(name, array)
        for name, value in self.caches.items():
            binding.bind_ortvalue_input(name, value)
            binding.bind_ortvalue_output(name.replace("past", "present"), value)
        binding.bind_output("logits", "cpu")
        self.session.run_with_iobinding(binding)
        return binding.get_outputs()[-1].numpy()


class OpenVino(Generator):
    turn = 0

    def run(self, feed: dict[str, np.ndarray]) -> Any:
        self.turn = 1 - self.turn
        results = self.session[self.turn].infer(feed | self.caches, share_inputs=True, share_outputs=True)
        found = {name: results[i] for i, name in enumerate(self.outputs)}
        self.keep(found)
        return found["logits"]


WAYS: dict[str, Any] = {"values": ByValues, "iobinding": ByBinding, "shared": ByShared}


def generator(runtime: str, path: Path, threads: int, batch: int, by: str) -> Generator:
    if runtime == "openvino":
        import openvino

        config: dict[str, Any] = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
        config["INFERENCE_NUM_THREADS"] = threads
        compiled = openvino.Core().compile_model(str(path), "CPU", config)
        arguments = [_described(port) for port in compiled.inputs]
        names = [_name(port) for port in compiled.outputs]
        return OpenVino([compiled.create_infer_request() for _ in range(2)], names, Inputs(arguments, batch, False))
    module = importlib.import_module(runtime)
    options = module.SessionOptions()
    options.intra_op_num_threads = threads
    session = module.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    inputs, names = Inputs(session.get_inputs(), batch, by == "shared"), [a.name for a in session.get_outputs()]
    return WAYS[by](module, session, names, inputs) if by in WAYS else Generator(session, names, inputs)


def _name(port: Any) -> str:
    """The model's name of an input or output of OpenVINO, which may have others."""
    ours = [n for n in port.get_names() if n.startswith(("past.", "present.", "logits"))]
    return str(ours[0] if ours else port.get_any_name())


def _described(port: Any) -> SimpleNamespace:
    """An input of OpenVINO as onnxruntime describes it."""
    kinds = {"f32": "tensor(float)", "f16": "tensor(float16)", "i64": "tensor(int64)", "boolean": "tensor(bool)"}
    shape = [d.get_length() if d.is_static else "" for d in port.get_partial_shape()]
    return SimpleNamespace(name=_name(port), type=kinds[port.get_element_type().get_type_name()], shape=shape)


def generators(path: Path, options: argparse.Namespace, by: str) -> dict[str, Generator]:
    made: dict[str, Generator] = {}
    for runtime in options.runtimes.split(","):
        if runtime == "openvino" and by == "shared":
            continue
        try:
            one = generator(runtime, path, options.threads, options.batch, by)
            one.step(one.inputs.tokens(4))
            one.reset()
            made[runtime] = one
        except Exception as error:
            if runtime == "intarsia":
                raise
            print(f"# {path.stem}: {runtime}: {str(error).splitlines()[0][:150]}", flush=True)
    return made


def compared(name: str, path: Path, options: argparse.Namespace, by: str) -> None:
    """A row: one text, in turns of steps at equal lengths."""
    made = generators(path, options, by)
    tokens = np.random.default_rng(1).integers(5, 1990, (options.batch, options.prompt + options.steps))
    worst, first = 0.0, {}
    for runtime, one in made.items():
        one.wall.clear()
        one.busy.clear()
        first[runtime] = one.step(tokens[:, : options.prompt])
        first[runtime] = one.busy.pop() * 1e3
        one.wall.pop()
    done, end = 0, time.perf_counter() + options.seconds
    while done < options.steps and time.perf_counter() < end:
        logits = {}
        for runtime, one in made.items():
            for i in range(done, done + TURN):
                result = one.step(tokens[:, options.prompt + i : options.prompt + i + 1])
            logits[runtime] = np.array(result, np.float32)
        done += TURN
        for other in logits.values():
            worst = max(worst, float(np.abs(logits["intarsia"] - other).max() / np.abs(other).max()))
    print(_row(f"{name}, batch {options.batch}, {by}, {done} after {options.prompt}", made, first, worst), flush=True)


def _row(name: str, made: dict[str, Generator], first: dict[str, float], worst: float) -> str:
    turns = {r: np.array(one.busy).reshape(-1, TURN).sum(1) for r, one in made.items()}
    cells = []
    for runtime in ("intarsia", "onnxruntime", "openvino"):
        one = made.get(runtime)
        cells.append("-" if one is None else f"{1 / statistics.median(one.busy):.4g} ({1 / statistics.median(one.wall):.4g})")
    mine = turns.pop("intarsia")
    cells += [f"{np.median(turns[r] / mine):.2f}" if r in turns else "-" for r in ("onnxruntime", "openvino")]
    cells.append(", ".join(f"{x:.3g}" for x in first.values()))
    return f"| {name} | {' | '.join(cells)} | {worst:.0e} |"


def prompts(name: str, path: Path, options: argparse.Namespace, by: str) -> None:
    """Prompts of random lengths in one session, each followed by nothing: most lengths are new."""
    made = generators(path, options, by)
    random = np.random.default_rng(2)
    for one in made.values():
        one.wall.clear()
        one.busy.clear()
    end, count = time.perf_counter() + options.seconds, 0
    while time.perf_counter() < end and count < options.steps:
        ids = random.integers(5, 1990, (options.batch, int(random.integers(1, options.prompt))))
        for one in made.values():
            one.reset()
            one.step(ids)
        count += 1
    busy = {r: np.array(one.busy) for r, one in made.items()}
    cells = [
        f"{busy[r].mean() * 1e3:.3g} ({np.median(busy[r]) * 1e3:.3g})" if r in busy else "-"
        for r in ("intarsia", "onnxruntime", "openvino")
    ]
    cells += [
        f"{busy[r].sum() / busy['intarsia'].sum():.2f}, {np.median(busy[r] / busy['intarsia']):.2f}" if r in busy else "-"
        for r in ("onnxruntime", "openvino")
    ]
    print(f"| {name}, batch {options.batch}, {count} prompts of 1 to {options.prompt} | {' | '.join(cells)} |", flush=True)


def memory_of(runtime: str, path: Path, options: argparse.Namespace, by: str) -> dict[str, Any]:
    """Peaks in MB of this process: with the session, after an eighth, a half and all of the steps."""
    one = generator(runtime, path, options.threads, options.batch, by)
    found = [_peak()]
    one.step(one.inputs.tokens(options.prompt))
    for i in range(options.steps):
        one.step(one.inputs.tokens(1))
        if i + 1 in (options.steps // 8, options.steps // 2, options.steps):
            found.append(_peak())
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
    return {"peaks": found, "resident": resident, "busy": sum(one.busy), "first": [x * 1e3 for x in one.busy[:3]]}


def _peak() -> int:
    """By the kernel's status: what `getrusage` says begins with the parent's."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) >> 10


def memory(name: str, path: Path, options: argparse.Namespace, by: str) -> None:
    for runtime in options.runtimes.split(","):
        call = [sys.executable, __file__, str(path.parent), name, "--what", "memory", "--inside", "--runtimes", runtime]
        call += ["--by", by, *(f"--{n}={getattr(options, n)}" for n in ("threads", "batch", "steps", "prompt"))]
        for _ in range(2 if runtime == "intarsia" else 1):  # the first may compile
            done = subprocess.run(call, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"# {name}: {runtime}: {done.stderr.strip().splitlines()[-1][:150]}", flush=True)
            continue
        said = json.loads(done.stdout.splitlines()[-1])
        peaks = ", ".join(map(str, said["peaks"]))
        texts = [f"{x:.3g}" for x in said["first"]]
        print(
            f"| {name}, {by} | {runtime} | {peaks} | {said['resident']} | {said['busy']:.3g} | {', '.join(texts)} |", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=["*"], help="patterns of names")
    parser.add_argument("--what", choices=("steps", "prompts", "memory", "export"), default="steps")
    parser.add_argument("--runtimes", default="intarsia,onnxruntime,openvino")
    parser.add_argument("--by", default="run")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=64, help="tokens of the prompt, or the longest one")
    parser.add_argument("--steps", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=10.0, help="at most, for a row")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    does: Callable[..., None] = {"steps": compared, "prompts": prompts, "memory": memory}.get(options.what, lambda *_: None)
    if options.inside:  # nothing is imported but the runtime
        path = options.folder / f"{options.names[0]}.onnx"
        print(json.dumps(memory_of(options.runtimes, path, options, options.by)))
        return
    from cases.generation_models import MODELS, written

    for name in MODELS:
        if not any(fnmatch.fnmatch(name, pattern) for pattern in options.names):
            continue
        path = written(options.folder, name)
        for by in options.by.split(","):
            does(name, path, options, by)
            gc.collect()


if __name__ == "__main__":
    main()
