"""What NVIDIA's libraries found out on this machine, cached for later processes: times of kernels, and compiled kernels."""

from __future__ import annotations

from intarsia.cache.disk_cache import DiskCache, content_key, get_cache
from intarsia.device.cuda import CudaDevice
from intarsia.providers.tensorrt.library import Library


class _Cached:
    """Bytes under one key, in a folder of the user's or in Intarsia's cache."""

    def __init__(self, folder: str, key: str) -> None:
        self._cache = DiskCache(folder) if folder else get_cache()
        self._key = key

    def find(self) -> bytes | None:
        found = self._cache.get(self._key)
        return bytes(found) if found is not None else None

    def keep(self, data: bytes) -> None:
        if data:
            self._cache.put(self._key, data)


def _machine(library: Library, gpu: CudaDevice) -> str:
    return f"{library.title} on {gpu.device.description} {gpu.architecture}"


class TimingCache(_Cached):
    """Full TensorRT's measured times of kernels on this GPU. `folder` None: none are cached."""

    def __init__(self, library: Library, gpu: CudaDevice, folder: str | None) -> None:
        super().__init__(folder or "", f"tensorrt-times-{content_key(_machine(library, gpu))}")
        self._used = folder is not None

    def find(self) -> bytes | None:
        """b"" where nothing was measured yet, None where nothing is to be cached."""
        return (super().find() or b"") if self._used else None

    def keep(self, data: bytes) -> None:
        if self._used:
            super().keep(data)


class KernelCache(_Cached):
    """What TensorRT-RTX compiled of one engine for this GPU."""

    def __init__(self, library: Library, gpu: CudaDevice, folder: str, engine: bytes) -> None:
        super().__init__(folder, f"tensorrt-kernels-{content_key(_machine(library, gpu), engine)}")
