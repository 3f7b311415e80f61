"""Pages of mapped files are given back where that loses nothing."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest

from intarsia.graph.formats.mapped_arrays import release_bytes, release_pages

VALUES = np.arange(4 * mmap.PAGESIZE, dtype=np.uint8)

pytestmark = pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED"), reason="this system takes no pages back")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "values.npy"
    np.save(path, VALUES)
    return path


def test_of_a_file_that_is_read(file: Path) -> None:
    mapped = np.load(file, mmap_mode="r")
    assert release_pages(mapped) == release_bytes(memoryview(mapped)) == 3 * mmap.PAGESIZE
    np.testing.assert_array_equal(mapped, VALUES)


@pytest.mark.parametrize("mode", ["c", "r+"])
def test_changes_of_a_mapping_are_not_lost(file: Path, mode: str) -> None:
    mapped = np.load(file, mmap_mode=mode)
    mapped[:] = 7
    seen = mapped.view()
    seen.flags.writeable = False  # as an array of a model is
    assert release_pages(seen) == release_bytes(memoryview(seen)) == 0
    assert set(mapped) == {7}


def test_memory_that_is_no_file() -> None:
    assert release_pages(VALUES) == 0
