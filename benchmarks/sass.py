"""What a model's CUDA kernels are in machine code, and what bounds them, without a GPU: python benchmarks/sass.py MODEL.onnx

The model is planned on the tests' imitation of the driver, and every kernel is compiled by NVRTC. Of each: registers, bytes
that spill, shared memory, warps that a multiprocessor can hold, and the instructions of the loop that works most: shares of
multiply-adds and of integer arithmetic, how wide it loads. Then three bounds for each launch: memory (bytes read and written,
each value once), issue (instructions that the threads execute) and start (a kernel cannot be shorter). Trips of loops are
those of the printed text, whose line numbers the machine code carries. The bounds are leads, not measurements: latencies that
nothing hides are not in them.

Needs nvdisasm: pip install nvidia-cuda-nvdisasm (or CUDA's own on the PATH). MODEL.npz beside the model has its inputs.
"""

from __future__ import annotations

import argparse
import functools
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from models import feeds_of, print_table

TESTS = Path(__file__).parents[1] / "tests" / "providers" / "imitations"


@dataclass(frozen=True)
class Chip:
    """Of a GPU. Defaults are an H200's: 4.8 TB/s by its data sheet, of which copies reach 4.3 (seen on one)."""

    multiprocessors: int = 132
    clock_hz: float = 1.755e9
    bytes_per_s: float = 4.8e12
    issue: int = 4  # instructions of warps that a multiprocessor starts in a cycle
    registers: int = 65536
    warps: int = 64
    blocks: int = 32
    shared_nbytes: int = 233472
    start_s: float = 2.0e-6  # of a kernel in a graph, beginning to beginning

    def resident(self, threads: int, registers: int, shared_nbytes: int) -> int:
        """Blocks of such a kernel on one multiprocessor at a time."""
        warps = -(-threads // 32)
        by_registers = self.registers // (warps * max(-(-registers * 32 // 256) * 256, 256))
        by_shared = self.shared_nbytes // (-(-(shared_nbytes + 1024) // 128) * 128)
        return min(self.blocks, self.warps // warps, by_registers, by_shared)


# --- the printed text -------------------------------------------------------------------------------------------------


@dataclass
class Loop:
    """A loop of the text, lines `first` to `last`; `trips` of one thread, on average."""

    first: int
    last: int
    trips: float
    outer: Loop | None = None


_FOR = re.compile(r"for \(int (\w+) = (.+?); \w+ (<=?) (.+?); \w+ \+= (\d+)\) \{")


def loops_of(source: str, sizes: Sequence[int], threads: int) -> list[Loop]:
    """The loops of a kernel's text, whose sizes are its arguments. Bounds that are no numbers count as 16."""
    known: dict[str, float] = {f"p{i}": float(size) for i, size in enumerate(sizes)}
    found: list[Loop] = []
    stack: list[Loop | None] = []
    for number, line in enumerate(source.splitlines(), 1):
        head = _FOR.search(line)
        for symbol in re.findall(r"[{}]", line):
            if symbol == "{":
                outer = next((x for x in reversed(stack) if x is not None), None)
                stack.append(Loop(number, number, _trips(head, known, threads), outer) if head else None)
                head = None
            elif stack:
                if (done := stack.pop()) is not None:
                    done.last = number
                    found.append(done)
    return found


def _trips(head: re.Match[str], known: dict[str, float], threads: int) -> float:
    stop = known.get(head[4])
    if stop is None:
        stop = float(head[4]) if head[4].isdigit() else 16.0
    start = (threads - 1) / 2 if "threadIdx" in head[2] else float(head[2]) if re.fullmatch(r"-?\d+", head[2]) else 0.0
    return max((stop - start + (head[3] == "<=")) / int(head[5]), 0.0)


# --- machine code -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Instruction:
    at: int
    line: int  # of the text; 0: not known
    name: str  # with its modifiers
    target: int  # of a branch; -1: none


@dataclass
class Code:
    """A compiled kernel."""

    registers: int
    spilled_nbytes: int
    shared_nbytes: int
    instructions: list[Instruction] = field(default_factory=list)

    def back_edges(self) -> list[tuple[int, int]]:
        """Innermost last: where loops begin and end."""
        found = [(i.target, i.at) for i in self.instructions if 0 <= i.target < i.at]
        return sorted(found, key=lambda edge: edge[0] - edge[1])


@functools.cache
def disassembler() -> str:
    """The path of nvdisasm. Raises SystemExit where there is none."""
    packaged = [Path(p) / "nvidia" / "cu13" / "bin" / "nvdisasm" for p in sys.path]
    found = shutil.which("nvdisasm") or next((str(p) for p in packaged if p.exists()), "")
    if not found:
        raise SystemExit("nvdisasm is not found: pip install nvidia-cuda-nvdisasm")
    return found


def compiled(source: str, architecture: int) -> Code:
    """The kernel as NVRTC makes it, with the numbers of ptxas. Raises EPFail where it is refused."""
    from intarsia.device import nvrtc

    code, log = nvrtc.reported(source, architecture)
    registers = re.search(r"Used (\d+) registers", log)
    spills = re.findall(r"(\d+) bytes spill (?:stores|loads)", log)
    shared = re.search(r"(\d+) bytes smem", log)
    assert registers is not None, log
    made = Code(int(registers[1]), sum(map(int, spills)), int(shared[1]) if shared else 0)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        text = subprocess.run([disassembler(), "-c", "-g", file.name], capture_output=True, text=True, check=True).stdout
    made.instructions = list(_instructions(text))
    return made


def _instructions(text: str) -> Iterator[Instruction]:
    labels: dict[str, int] = {}
    rows: list[tuple[int, int, str, str]] = []
    pending: list[str] = []
    line = 0
    for row in text.splitlines():
        if place := re.search(r'//## File ".*?", line (\d+)', row):
            line = int(place[1]) if "inlined" not in row else line
        elif label := re.match(r"\s*(\.L_x_\d+):", row):
            pending.append(label[1])
        elif code := re.search(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+ )?([A-Z][\w.]*)\s*(.*?);", row):
            at = int(code[1], 16)
            for name in pending:
                labels[name] = at
            pending = []
            rows.append((at, line, code[2], code[3]))
    for at, line, name, operands in rows:
        jump = re.search(r"`\((\.L_x_\d+)\)", operands) if name.startswith("BRA") else None
        yield Instruction(at, line, name, labels.get(jump[1], -1) if jump else -1)


_INTEGER = tuple(
    "IMAD IADD VIADD ISETP LOP3 SHF LEA IABS SEL PRMT IMNMX VIMNMX I2F F2I I2I UIADD UIMAD ULEA USHF ULOP UISETP USEL".split()
)
_MULTIPLY = ("FFMA", "HMMA", "HGMMA", "DFMA", "IDP", "IMMA")


def kind_of(name: str) -> str:
    """The class of an instruction by its name."""
    head = name.split(".", maxsplit=1)[0]
    if head in _MULTIPLY:
        return "multiply"
    if head in ("LDG", "LDS", "STG", "STS", "LDL", "STL", "LDGSTS", "LDSM", "LD", "ST"):
        return head
    if name.startswith("IMAD.MOV") or head in ("MOV", "UMOV", "CS2R", "S2R", "S2UR", "R2UR"):
        return "move"
    return "integer" if head.startswith(_INTEGER) else "other"


def widths(instructions: Sequence[Instruction], head: str) -> str:
    """How many loads or stores of each width in bits, such as "4x128 2x32"."""
    found: Counter[int] = Counter()
    for name, *modifiers in (i.name.split(".") for i in instructions):
        if name == head:
            found[next((_BITS[m] for m in modifiers if m in _BITS), 32)] += 1
    return " ".join(f"{n}x{w}" for w, n in sorted(found.items(), reverse=True))


_BITS = {"64": 64, "128": 128, "U8": 8, "S8": 8, "U16": 16, "S16": 16}


# --- together ---------------------------------------------------------------------------------------------------------


@dataclass
class Work:
    """What one thread of a launch executes: instructions, and those of its busiest loop."""

    instructions: float
    hot: list[Instruction]
    hot_share: float


def executed(code: Code, source: str, sizes: Sequence[int], threads: int) -> Work:
    """By the trips of the text's loops: one whose body was written out several times has so many trips fewer."""
    loops = loops_of(source, sizes, threads)
    owner = {
        n: min((x for x in loops if x.first <= n <= x.last), key=lambda x: x.last - x.first, default=None)
        for n in {i.line for i in code.instructions}
    }
    weights: dict[int, float] = {i.at: 1.0 for i in code.instructions}
    seen: list[tuple[Loop, list[Instruction]]] = []
    for start, end in code.back_edges():
        body = [i for i in code.instructions if start <= i.at <= end]
        votes = Counter(id(owner[i.line]) for i in body if owner[i.line] is not None)
        if not votes:
            continue
        by_id = {id(x): x for x in loops}
        loop = by_id[votes.most_common(1)[0][0]]
        if any(loop is other for other, _ in seen):  # its remainder, behind the part that is written out
            for i in body:
                weights[i.at] = 0.0
            continue
        seen.append((loop, body))
        trips = max(loop.trips / _copies(body, loop, source), 0.0)
        for i in body:
            weights[i.at] *= trips
    total = sum(weights.values())
    bodies = sorted([code.instructions, *(body for _, body in seen)], key=len)
    innermost = {i.at: n for n, body in reversed(list(enumerate(bodies))) for i in body}
    own = [[i for i in body if innermost[i.at] == n] for n, body in enumerate(bodies)]
    share, hot = max(((sum(weights[i.at] for i in body), body) for body in own), key=lambda pair: pair[0])
    return Work(total, hot, share / max(total, 1.0))


def _copies(body: Sequence[Instruction], loop: Loop, source: str) -> float:
    """How often the loop's text is in the machine code's body."""
    text = source.splitlines()[loop.first : loop.last]
    inside = [i for i in body if loop.first <= i.line <= loop.last]
    for pattern, heads in (
        (r"\+= \w+\.\w \* |\+ \w+ \* ", ("FFMA", "DFMA")),
        (r"\bcopy_16\(", ("LDGSTS",)),
        (r"\bX\d+\[", ("LDG",)),
        (r"shared\d+\[[^]]*\](?! =)", ("LDS",)),
        (r"\] = ", ("STS", "STG")),
    ):
        written = sum(len(re.findall(pattern, line)) for line in text)
        found = sum(i.name.split(".")[0] in heads for i in inside)
        if written and found >= written:
            return float(round(found / written))
    return 1.0


@dataclass
class Launch:
    """A kernel of a plan, with what it moves."""

    schedule: str
    node: str
    source: str
    sizes: tuple[int, ...]
    groups: tuple[int, int, int]
    threads: int
    nbytes: int
    flop: int = 0  # of a library's call
    shared_nbytes: int = 0  # that the launch asks for, besides what the text declares

    @property
    def blocks(self) -> int:
        return int(np.prod(self.groups))


def launches_of(model: Path, options: dict[str, Any], feeds: dict[str, np.ndarray] | None = None) -> list[Launch]:
    """The launches of one run, on the imitated driver. Nothing is computed there."""
    sys.path.insert(0, str(TESTS))
    from offline_kernels import imitated

    import intarsia
    from intarsia.device import cuda, cuda_libraries
    from intarsia.device.libraries import LibraryProgram
    from intarsia.providers.gpu import plan

    class Silent(LibraryProgram):
        title = "a library"

        def start(self, stream: Any, addresses: np.ndarray) -> str:
            return ""

    plans: list[plan.Plan] = []
    kept = plan.Plan.__post_init__

    def planned(self: plan.Plan) -> None:
        kept(self)
        plans.append(self)

    with imitated("cuda"):
        plan.Plan.__post_init__ = planned  # type: ignore[method-assign]
        cuda_libraries.CudaLibraries._made = lambda self, call: Silent()  # type: ignore[method-assign]
        cuda_libraries.CudaLibraries._start = lambda self, name: object()  # type: ignore[method-assign]
        machine: Any = cuda.driver()
        machine.memory_nbytes = 64 << 30
        session = intarsia.InferenceSession(str(model), providers=[("CUDAExecutionProvider", options), "CPUExecutionProvider"])
        session.run(None, feeds_of(model) if feeds is None else feeds)
    found = []
    for made in plans:
        for job in made.jobs:
            nbytes = sum(made.nbytes_of(n) for n in {*job.reads, *job.writes})
            kernel, call = job.kernel, job.kernel.call
            found.append(
                Launch(
                    job.schedule,
                    job.node,
                    kernel.source,
                    kernel.sizes,
                    kernel.groups,
                    kernel.threads,
                    nbytes,
                    call.flop if call is not None else 0,
                    kernel.shared_nbytes,
                )
            )
    return found


def described(launch: Launch, code: Code, chip: Chip) -> dict[str, Any]:
    """The figures of one launch."""
    work = executed(code, launch.source, launch.sizes, launch.threads)
    shared_nbytes = code.shared_nbytes + launch.shared_nbytes
    resident = chip.resident(launch.threads, code.registers, shared_nbytes)
    warps = -(-launch.threads // 32)
    kinds = Counter(kind_of(i.name) for i in work.hot)
    # blocks that a multiprocessor gets, at most
    per_unit = -(-launch.blocks // chip.multiprocessors)
    issue_s = per_unit * warps * work.instructions / chip.issue / chip.clock_hz
    return {
        "memory": launch.nbytes / chip.bytes_per_s, "issue": issue_s, "start": chip.start_s, "registers": code.registers,
        "spilled": code.spilled_nbytes, "shared": shared_nbytes, "warps": resident * warps,
        "hot": len(work.hot), "share": work.hot_share, "multiply": kinds["multiply"] / max(len(work.hot), 1),
        "integer": kinds["integer"] / max(len(work.hot), 1), "LDG": widths(work.hot, "LDG"), "LDS": widths(work.hot, "LDS"),
        "waves": launch.blocks / max(chip.multiprocessors * resident, 1),
    }  # fmt: skip


BOUNDS = ("memory", "issue", "start")
COLUMNS = (
    "kernel (its slowest launch)", "launches", "us", "bound", "memory us", "issue us", "grid", "waves", "registers", "spilled",
    "shared", "warps/SM", "hot loop", "multiply", "integer", "LDG", "LDS",
)  # fmt: skip


def row_of(spent: float, count: int, launch: Launch, f: dict[str, Any]) -> list[str]:
    """A line of the table, for all launches of one kernel."""
    return [
        f"{launch.schedule} {launch.node}"[:44], str(count), f"{spent * 1e6:.1f}", max(BOUNDS, key=f.__getitem__),
        f"{f['memory'] * 1e6:.2f}", f"{f['issue'] * 1e6:.2f}", f"{launch.blocks}x{launch.threads}", f"{f['waves']:.2f}",
        str(f["registers"]), str(f["spilled"]), str(f["shared"]), str(f["warps"]), f"{f['hot']} ({f['share']:.0%})",
        f"{f['multiply']:.0%}", f"{f['integer']:.0%}", f["LDG"] or "-", f["LDS"] or "-",
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--architecture", type=int, default=90)
    parser.add_argument("--libraries", action="store_true", help="products and convolutions by cuBLASLt and cuDNN")
    parser.add_argument("--tf32", action="store_true", help="tensor cores multiply float32")
    parser.add_argument("--top", type=int, default=20, help="kernels in the table, those that take longest first")
    parser.add_argument("--show", type=int, default=0, help="print text and machine code of so many kernels")
    given = parser.parse_args()
    chip = Chip()
    launches = launches_of(given.model, {"use_libraries": given.libraries, "use_tf32": given.tf32})
    own = [x for x in launches if not x.flop]
    codes = {x.source: compiled(x.source, given.architecture) for x in own}
    totals: Counter[str] = Counter()
    seconds = 0.0
    rows: dict[str, tuple[float, int, Launch, dict[str, Any]]] = {}
    for launch in own:
        figures = described(launch, codes[launch.source], chip)
        bound = max(BOUNDS, key=figures.__getitem__)
        totals[bound] += 1
        seconds += figures[bound]
        spent, count, first, kept = rows.get(launch.source, (0.0, 0, launch, figures))
        if figures[bound] > max(kept[n] for n in BOUNDS):
            first, kept = launch, figures
        rows[launch.source] = spent + figures[bound], count + 1, first, kept
    order = sorted(rows.values(), key=lambda row: -row[0])
    title = f"{given.model.stem}, sm_{given.architecture}: kernels by predicted time on an H200"
    print_table(title, COLUMNS, [row_of(*row) for row in order[: given.top]])
    for _, _, launch, _ in order[: given.show]:
        code = codes[launch.source].instructions
        print(f"\n{launch.source}\n" + "\n".join(f"{i.at:05x} {i.line:4d} {i.name}" for i in code))
    calls = [x for x in launches if x.flop]
    spilled = sum(c.spilled_nbytes > 0 for c in codes.values())
    bounds = ", ".join(f"{name} {totals[name]}" for name in BOUNDS)
    print(f"\n{len(own)} launches of {len(codes)} kernels ({spilled} spill), at least {seconds * 1e6:.0f} us; "
          f"bound by {bounds}; {len(calls)} calls of libraries, {sum(x.flop for x in calls) / 1e9:.2f} GFLOP")  # fmt: skip


if __name__ == "__main__":
    main()
