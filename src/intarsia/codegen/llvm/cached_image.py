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
    from intarsia.codegen.llvm.level_images import LevelImages
    from intarsia.codegen.llvm.target import Target


class CachedImage:
    """Functions that are linked into one block and cached under `name`. Its code is never unloaded.

    A wheel brings such blocks for levels of CPUs (`level_images`), which serve where the cache has none.

    Args:
        name: begins the cache's key, and is the image's among those of a level.
        texts: the functions' texts by names of the caller's, for a CPU.
    """

    def __init__(self, name: str, texts: Callable[[Target], Mapping[str, KernelText]]) -> None:
        self.name, self._texts = name, texts
        self._loaded: dict[str, dict[str, int]] = {}  # by key: INTARSIA_CPU_FEATURES may change
        self._made_for: dict[str, Target] = {}  # by key, where that is a level of CPUs

    def addresses(self) -> dict[str, int]:
        """The functions' addresses by name: loaded, or made where that cannot be.

        Raises:
            EPFail: they cannot be compiled.
        """
        return self.load() or self.make()

    def load(self) -> dict[str, int] | None:
        """The addresses without a compiler; None where no such block is cached or comes with the package, or this process
        cannot load it."""
        key = self._key()
        if key not in self._loaded:
            found = get_cache().load(key)
            if found is None and (level := self._of_level()) is not None:
                found, self._made_for[key] = level.images[self.name], level.target
            if found is not None:
                symbols, linked = found
                addresses = linked_image.load(linked)
                if addresses is not None:
                    self._loaded[key] = {name: addresses[symbol] for name, symbol in symbols.items()}
        return self._loaded.get(key)

    def target(self) -> Target:
        """What the functions that `load` found were compiled for: this CPU, or a level of CPUs that it belongs to."""
        from intarsia.codegen.llvm.target import Target

        return self._made_for.get(self._key()) or Target.host()

    def compiled_for(self, target: Target) -> tuple[dict[str, str], bytes] | None:
        """The functions' symbols by name, and their linked code for another CPU of this system; None where its objects
        cannot be linked. Nothing is loaded.

        Raises:
            EPFail: they cannot be compiled.
        """
        from intarsia.codegen.llvm.jit import Compilation, get_engine, with_parts
        from intarsia.codegen.llvm.link_objects import link

        kernels = self._texts(target)
        symbols = {name: kernel.symbol for name, kernel in kernels.items()}
        with Compilation(get_engine(target)) as running:
            objects = [code for _, code in running.results(with_parts(kernels.values()).values())]
        linked = link(objects, symbols.values())
        return (symbols, linked) if linked is not None else None

    def _of_level(self) -> LevelImages | None:
        from intarsia.codegen.llvm import level_images

        found = level_images.of_this_cpu()
        return found if found is not None and self.name in found.images else None

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
        """Whether it is cached, or comes with the package."""
        return get_cache().has(self._key()) or self._of_level() is not None

    def _key(self) -> str:
        return f"{self.name}-{fingerprint()}"
