"""`intarsia cache`: the compiled kernels on disk."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from intarsia.cache.disk_cache import DiskCache, cache_enabled, get_cache
from intarsia.cli.inputs.feeds import FeedOptions, build_feeds, parse_dims
from intarsia.cli.inputs.signature import Signature
from intarsia.cli.run import open_session
from intarsia.cli.show import note, note_feeds, print_json, screen, shown, table
from intarsia.errors import Fail, InvalidArgument
from intarsia.reports.cache_listing import KINDS, by_kind, warm_starts

app = typer.Typer(help="Look at, check, shrink or empty the cache of compiled kernels.", no_args_is_help=True)


def _cache() -> DiskCache:
    if not cache_enabled():
        note("the cache is off: INTARSIA_CACHE says so")
    return get_cache()


@app.command("info")
def show_info() -> None:
    """Say where the cache is and what it holds."""
    store = _cache()
    megabytes = store.size() / 1e6
    where = shown(str(store.directory or "none"))
    screen.print(f"{where}: {len(store.entries())} entries, {megabytes:.1f} MB", highlight=False)


@app.command("ls")
def list_entries(
    count: Annotated[int, typer.Option("--count", "-n", min=0, help="Models to show, those used last; 0: all.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List what the cache holds: entries by kind, and the models that sessions start from it with."""
    store = _cache()
    kinds, starts = by_kind(store.entries()), warm_starts(store, count)
    if as_json:
        where = str(store.directory) if store.directory else None
        data = {"directory": where, "kinds": [asdict(k) for k in kinds], "warm_starts": [asdict(s) for s in starts]}
        print_json(json.dumps(data, indent=1))
        return
    rows = [[k.name, f"{k.entries:,}", f"{k.nbytes / 1e6:,.1f}", _when(k.last_used)] for k in kinds]
    table(str(store.directory or "none"), ["kind", "entries", "MB", "last used"], rows, numeric=("entries", "MB"))
    if starts:
        models = [[s.model or "(made by another version)", ", ".join(s.inputs), f"{s.nbytes / 1e6:,.1f}", _when(s.last_used)]
                  for s in starts]  # fmt: skip
        table("\nmodels that sessions start from here with", ["model", "inputs", "MB", "last used"], models, numeric=("MB",))
        total = sum(k.entries for k in kinds if k.name == KINDS["start"])
        if total > len(starts):
            note(f"the last {len(starts)} of {total}; -n 0 shows all")


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


@app.command("warm")
def warm_cache(
    models: Annotated[list[Path] | None, typer.Argument(help="ONNX files whose sessions are to start from here.")] = None,
    dim: Annotated[list[str] | None, typer.Option("--dim", "-d", help="Size of a symbolic dimension. Default: 1.")] = None,
    threads: Annotated[int, typer.Option("--threads", "-t", min=0, help="Threads of a run; 0: as many as cores.")] = 0,
) -> None:
    """Compile ahead: models that are named, which are run once; without one, kernels that many models have in common.

    Examples:

    `intarsia cache warm`

    `intarsia cache warm model.onnx -d batch=1 -d seq=128`
    """
    store = _cache()
    if not store.place:
        raise InvalidArgument("there is no cache to compile into: INTARSIA_CACHE says so")
    if models:
        for model in models:
            session = open_session(model, [], threads)
            feeds = build_feeds(Signature.of_session(session), [], FeedOptions(parse_dims(dim or [])))
            note_feeds(feeds)
            session.run(None, feeds.arrays)
            screen.print(f"{shown(str(model))}: sessions start from the cache", highlight=False, soft_wrap=True)
    else:
        from intarsia.cli.precompile import compile_common

        count = compile_common(lambda name: note(f"compiling {name}"))
        screen.print(f"{count} kernels compiled", highlight=False)
    if not store.writable:
        raise Fail(f"nothing was cached: the cache {store.place!r} cannot be written")


@app.command("clear")
def clear_cache() -> None:
    """Remove every entry; kernels are compiled anew when they are next needed."""
    screen.print(f"{_cache().clear()} entries removed", highlight=False)


@app.command("verify")
def verify_cache() -> None:
    """Check every entry and remove the damaged ones."""
    damaged = _cache().verify()
    screen.print(f"{len(damaged)} damaged entries removed" if damaged else "every entry is whole", highlight=False)


@app.command("prune")
def prune_cache(
    max_mb: Annotated[float, typer.Option(min=0, help="Keep the entries used last, up to this many megabytes.")] = 256.0,
) -> None:
    """Remove entries that were not used for longest."""
    screen.print(f"{_cache().prune(int(max_mb * 1e6))} entries removed", highlight=False)
