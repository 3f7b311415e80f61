"""Models that mean harm, for untrusted sessions: changed ones of `mutations.py` and `damaged.py`, and those of `hostile_*.py`.

Run as a program it reads a line `KIND SEED` for each case, runs it on both providers within the limits of `LIMITS`, and writes
a line of JSON: what was wrong, who gave results, seconds, and by how many MiB the process grew. A case that runs is run again
with other sizes, where its model leaves sizes open.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import resource
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import damaged
import hostile_graphs
import hostile_kept
import hostile_searches
import hostile_tables
import hostile_wire
import mutations
import numpy as np
from hostile_written import WRITTEN, stored, written
from mutations import PROVIDERS, UNCLEAR, Case, told_of
from results_of_two import difference, has_moderate_numbers

import intarsia as ort
from intarsia.errors import IntarsiaError

LIMITS = {"seconds": 1, "memory_mib": 64, "output_mib": 16, "model_mib": 16, "nodes": 5000, "nesting": 8}
SLACK_SECONDS = 60.0  # of two sessions and runs: what no limit reaches in the middle, on machines that do other things
SLACK_MIB = 1024.0
# Their results are drawn, or are places in memory that nobody has written, or any of several orders.
DRAWN = ("Random", "Multinomial", "Bernoulli", "Dropout", "Sampling", "Gradient", "TopK", "Unique")
OTHER_SIZES = (0, 1, 2, 3, 5, 17)
MOST_ELEMENTS = 1 << 20  # of an input in other sizes: 17 along each of many axes are more than there is memory for
CHANGED = ("node", "model", "bytes", "wire", "tables", "graphs")  # kinds of which there are any number
KINDS = (*WRITTEN, "external", "initializer", "searches", "adapters", *hostile_kept.KINDS, *CHANGED)
ROUND = (*KINDS, *hostile_kept.QUICK * 10, *CHANGED * 100)  # the hand-written ones are few, and take longest


def scheduled(count: int, first: int) -> Iterator[tuple[str, int]]:
    """(kind, seed) of so many cases."""
    seen = dict.fromkeys(KINDS, first)
    for kind in itertools.islice(itertools.cycle(ROUND), count):
        yield kind, seen[kind]
        seen[kind] += 1


def case_of(kind: str, seed: int) -> Case:
    """The case of this kind and number; the same every time."""
    rng = random.Random(zlib.crc32(f"hostile {kind} {seed}".encode()))
    if kind in WRITTEN:
        return written(kind, rng)
    if kind in ("external", "initializer"):
        return stored(kind, rng)
    if kind in hostile_kept.KINDS:
        return hostile_kept.case_of(kind, rng)
    if kind == "node":
        return mutations.case_of(rng.choice(mutations.operators()), rng.randrange(1, 2**31))
    others = {
        "wire": hostile_wire.case_of, "tables": hostile_tables.case_of, "searches": hostile_searches.case_of,
        "graphs": hostile_graphs.case_of,
    }  # fmt: skip
    if kind in others:
        return others[kind](rng)
    if kind == "adapters":
        return Case(hostile_tables.adapter(rng), {}, "adapter")
    name = rng.choice(sorted(damaged.TEXTS))
    if kind == "model":
        return damaged.case_of(name, rng.randrange(1, 2**31))
    data = bytearray(damaged.model_of(name))
    for _ in range(rng.choice((1, 3, 30))):
        data[rng.randrange(len(data))] = rng.randrange(256)
    if rng.random() < 0.3:
        del data[rng.randrange(len(data)) :]
    if rng.random() < 0.1:
        data[:8] = b"\x18\0\0\0ORTM"
    return Case(bytes(data), damaged.feeds_of(name), "bytes")


# --- running ---


def untrusted(threads: int = 1) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.untrusted = True
    options.intra_op_num_threads = threads
    for name, value in LIMITS.items():
        options.add_session_config_entry(f"untrusted.{name}", str(value))
    return options


def run(case: Case, ran: list[str], rng: random.Random | None = None) -> Iterator[str]:
    """What was wrong; `ran`: who gave results."""
    rng = rng or random.Random(zlib.crc32(case.model))
    if case.told == "adapter":
        yield from _read_adapter(case.model, ran)
        return
    threads = rng.choice((1, 1, 1, 2))
    sessions, wrong = [], list[str]()
    for provider in PROVIDERS:
        found = _attempt(lambda provider=provider: ort.InferenceSession(case.model, untrusted(threads), providers=[provider]))
        if isinstance(found, str):
            wrong += [f"{provider}: {found}"] * bool(found)
        else:
            sessions.append((provider, found))
    yield from wrong
    moderate = None
    for feeds in _runs(sessions, case.feeds, rng):
        results = []
        for provider, session in sessions:
            found = _attempt(lambda session=session, feeds=feeds: session.run(None, feeds))
            if isinstance(found, str):
                if found:
                    yield f"{provider}: {found}"
            else:
                results.append(found)
                ran += [provider] * (provider not in ran)
        if len(results) == len(PROVIDERS) and not any(word.encode() in case.model for word in DRAWN):
            if moderate is None:
                moderate = has_moderate_numbers(case.model)
            exact = moderate and has_moderate_numbers(feeds)
            for i, (a, b) in enumerate(zip(*results, strict=True)):
                if what := difference(a, b, exact):
                    sizes = "" if feeds is case.feeds else f" for {_told_sizes(feeds)}"
                    yield f"output {i}{sizes}: {what}"


def _attempt(function: Any) -> Any:
    """Its result; text where it fails: "" by a proper error, or what is wrong with the error."""
    try:
        return function()
    except IntarsiaError as error:
        return f"{type(error).__name__} by {told_of(error.__cause__)}" if type(error.__cause__) in UNCLEAR else ""
    except BaseException as error:  # noqa: BLE001 (that is what is looked for)
        return told_of(error)


def _runs(sessions: list[Any], feeds: dict[str, Any], rng: random.Random) -> Iterator[dict[str, Any]]:
    """The case's feeds, others of other sizes where its inputs have some that are open, and the first once more."""
    yield feeds
    if len(sessions) < len(PROVIDERS):
        return
    open_sizes = {d for v in sessions[0][1].get_inputs() for d in v.shape or () if isinstance(d, str)}
    if not open_sizes or not all(isinstance(x, np.ndarray) and x.nbytes < 1 << 20 for x in feeds.values()):
        return
    for _ in range(rng.choice((1, 1, 2))):
        sizes = {d: rng.choice(OTHER_SIZES) for d in sorted(open_sizes)}
        made = {}
        for value in sessions[0][1].get_inputs():
            given = feeds.get(value.name)
            if given is None:
                continue
            shape = [sizes.get(d, n) for d, n in zip(value.shape or given.shape, given.shape, strict=False)]
            fits = given.size and len(shape) == given.ndim and math.prod(shape) <= MOST_ELEMENTS
            made[value.name] = np.resize(given, shape) if fits else given
        yield made
    yield feeds


def _told_sizes(feeds: dict[str, Any]) -> str:
    return ", ".join(f"{name}{list(np.shape(x))}" for name, x in feeds.items())


def _read_adapter(data: bytes, ran: list[str]) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.onnx_adapter")
        path.write_bytes(data)
        found = _attempt(lambda: ort.AdapterFormat.read_adapter(path).get_parameters())
        if isinstance(found, str):
            if found:
                yield found
        else:
            ran.append("adapter")


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))
    ort.set_default_logger_severity(4)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        kind, seed = line.split()
        case = case_of(kind, int(seed))
        ran: list[str] = []
        before, start = peak_mib(), time.monotonic()
        found = list(hostile_kept.run(kind, case, ran, _attempt) if kind in hostile_kept.KINDS else run(case, ran))
        seconds, grown = time.monotonic() - start, peak_mib() - before
        if kind != "entries" and seconds > 10 * LIMITS["seconds"] + SLACK_SECONDS:
            found.append(f"{seconds:.0f} s, where {LIMITS['seconds']} are allowed for each session and run")
        if grown > LIMITS["memory_mib"] + SLACK_MIB:
            found.append(f"{grown:.0f} MiB more, where {LIMITS['memory_mib']} are allowed")
        told = {"told": case.told, "found": found, "ran": ran, "seconds": seconds, "grown": grown}
        answers.write(json.dumps(told) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
