"""Native code that no model is needed for: compiled and linked once for a CPU and a build of this package, and from then on
loaded from the cache in a fraction of a millisecond."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from intarsia.cache.disk_cache import get_cache
from intarsia.cache.fingerprint import fingerprint
from intarsia.codegen.llvm import linked_image

if TYPE_CHECKING:
    from intarsia.codegen.llvm.jit import KernelText
    from intarsia.codegen.llvm.target import Target


class CachedImage:
    """Functions that are linked into one block and cached under `name`. Its code is never unloaded.

    Args:
        name: begins the cache's key.
        texts: the functions' texts by names of the caller's, for a CPU.
    """

    def __init__(self, name: str, texts: Callable[[Target], Mapping[str, KernelText]]) -> None:
        self._name, self._texts = name, texts
        self._loaded: dict[str, dict[str, int]] = {}  # by key: INTARSIA_CPU_FEATURES may change

    def addresses(self) -> dict[str, int]:
        """The functions' addresses by name: loaded, or made where that cannot be.

        Raises:
            EPFail: they cannot be compiled.
        """
        return self.load() or self.make()

    def load(self) -> dict[str, int] | None:
        """The addresses without a compiler; None where no such block is cached, or this process cannot load it."""
        key = self._key()
        if key not in self._loaded and (found := get_cache().load(key)) is not None:
            symbols, linked = found
            addresses = linked_image.load(linked)
            if addresses is not None:
                self._loaded[key] = {name: addresses[symbol] for name, symbol in symbols.items()}
        return self._loaded.get(key)

    def make(self) -> dict[str, int]:
        """Compile the functions into this process; where this system's objects can be linked, cache them.

        Raises:
            EPFail: they cannot be compiled.
        """
        from intarsia.codegen.llvm.jit import get_engine
        from intarsia.codegen.llvm.link_objects import link
        from intarsia.codegen.llvm.target import Target

        engine, kernels = get_engine(Target.host()), self.texts()
        addresses = engine.load(list(kernels.values()))
        symbols, cache = {name: kernel.symbol for name, kernel in kernels.items()}, get_cache()
        objects = engine.objects(list(kernels.values()), anew=True) if cache.writable else None
        linked = link(objects, list(symbols.values())) if objects is not None else None
        if linked is not None:
            cache.store(self._key(), (symbols, linked))
        self._loaded[self._key()] = {name: addresses[symbol] for name, symbol in symbols.items()}
        return self._loaded[self._key()]

    def texts(self) -> Mapping[str, KernelText]:
        """The functions' texts for this CPU, to be compiled."""
        from intarsia.codegen.llvm.target import Target

        return self._texts(Target.host())

    def is_made(self) -> bool:
        """Whether it is cached."""
        return get_cache().has(self._key())

    def _key(self) -> str:
        return f"{self._name}-{fingerprint()}"
