"""`intarsia cache`: the compiled kernels on disk."""

from __future__ import annotations

from typing import Annotated

import typer

from intarsia.cli.show import note, screen
from intarsia.codegen.cache import DiskCache, cache_enabled, get_cache

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
    screen.print(f"{store.directory or 'none'}: {len(store.entries())} entries, {megabytes:.1f} MB", highlight=False)


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
