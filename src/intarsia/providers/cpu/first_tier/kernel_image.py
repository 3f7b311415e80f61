"""The kernels of `kernel_set` as one block of linked code: made once for a CPU, loaded in a fraction of a millisecond."""

from __future__ import annotations

import pickle

from intarsia.cache.disk_cache import get_cache
from intarsia.cache.fingerprint import fingerprint
from intarsia.codegen.llvm import linked_image


def load() -> dict[str, int] | None:
    """The address of each kernel by its name; None where they were not made, or cannot be loaded into this process."""
    key = _key()
    if key not in _loaded and (data := get_cache().get(key)) is not None:
        symbols, linked = pickle.loads(data)  # noqa: S301 # machine code: the cache is trusted
        addresses = linked_image.load(linked)
        if addresses is not None:
            _loaded[key] = {name: addresses[symbol] for name, symbol in symbols.items()}
    return _loaded.get(key)


def is_made() -> bool:
    """Whether `load` finds them."""
    return get_cache().has(_key())


def make() -> int:
    """Compile what `kernel_set` names, and keep it in the cache; returns how many kernels there are, 0 where they cannot be
    linked on this system."""
    from intarsia.codegen.llvm.jit import get_engine
    from intarsia.codegen.llvm.link_objects import link
    from intarsia.codegen.llvm.target import Target
    from intarsia.providers.cpu.first_tier.kernel_set import kernels

    target = Target.host()
    texts = {name: write(target) for name, write in kernels()}
    engine = get_engine(target)
    engine.load(list(texts.values()))
    objects = engine.objects(list(texts.values()), anew=True)
    linked = link(objects, [text.symbol for text in texts.values()]) if objects is not None else None
    if linked is None:
        return 0
    symbols = {name: text.symbol for name, text in texts.items()}
    get_cache().put(_key(), pickle.dumps((symbols, linked), 5))
    return len(symbols)


def _key() -> str:
    return f"first-tier-{fingerprint()}"


_loaded: dict[str, dict[str, int]] = {}  # code is never unloaded
