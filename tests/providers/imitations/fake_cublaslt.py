"""cuBLASLt as its header documents it, computing in NumPy on the host's memory. Matrices are by columns."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from fake_library import FakeLibrary, Wrong, tf32

from intarsia.device import cublaslt as lt

SUCCESS, INVALID, NOT_SUPPORTED = 0, 7, 15
TYPES = {
    0: np.dtype(np.float32), 1: np.dtype(np.float64), 2: np.dtype(np.float16), 3: np.dtype(np.int8), 10: np.dtype(np.int32),
    14: np.dtype(ml_dtypes.bfloat16),
}  # fmt: skip
PRODUCT_SIZES = {3: 4, 4: 4, 7: 4, 8: 8, 26: 4}  # attribute -> bytes of its value
LAYOUT_SIZES = {5: 4, 6: 8}
PREFERENCE_SIZES = {1: 8, 5: 4, 6: 4, 7: 4, 8: 4}
COMBINATIONS = {  # compute, A, B -> scale, types of D, whether there are epilogues
    (68, 0, 0): (0, {0}, True), (77, 0, 0): (0, {0}, True), (68, 2, 2): (0, {2, 0}, True), (68, 14, 14): (0, {14, 0}, True),
    (70, 1, 1): (1, {1}, False), (72, 3, 3): (10, {10}, False),
}  # fmt: skip
EPILOGUES = {1, 2, 4, 6, 32, 36}
MAGIC = 0xC0FFEE


@dataclass
class Description:
    compute: int
    scale: int
    values: dict[int, int] = field(default_factory=dict)


@dataclass
class Layout:
    type: int
    rows: int
    columns: int
    ld: int
    values: dict[int, int] = field(default_factory=dict)

    @property
    def batch(self) -> int:
        return self.values.get(5, 1)

    @property
    def strides(self) -> tuple[int, int, int]:
        return self.values.get(6, 0), 1, self.ld


@dataclass
class Preference:
    values: dict[int, int] = field(default_factory=dict)


class Context:
    pass


class FakeCublasLt(FakeLibrary):
    """Attributes:
    workspace_nbytes: what its best algorithm needs; another one needs none.
    refused: epilogues that no algorithm has.
    asked: heuristics that were asked for.
    """

    signatures = lt.SIGNATURES
    internal_error = 14
    unsupported = frozenset({NOT_SUPPORTED})

    def __init__(self, machine: Any = None) -> None:
        super().__init__(machine)
        self.workspace_nbytes = 4096
        self.refused: set[int] = set()
        self.asked = 0
        self.start_error = 0
        self._algorithms: dict[int, tuple[Any, ...]] = {}

    def cublasLtGetVersion(self) -> int:
        return 130100

    def cublasLtGetStatusName(self, status: int) -> bytes:
        return lt.Status(status).name.encode()

    def cublasLtCreate(self, handle: Any) -> int:
        if self.start_error:
            return self.start_error
        assert self.machine is None or self.machine.current, "no context is the thread's"
        handle[0] = self.handle(Context())
        return SUCCESS

    def cublasLtDestroy(self, handle: int) -> int:
        self.thing(handle, Context)
        self.objects[handle] = None
        return SUCCESS

    # --- descriptors ---

    def cublasLtMatmulDescCreate(self, target: Any, compute: int, scale: int) -> int:
        target[0] = self.handle(Description(compute, scale))
        return SUCCESS

    def cublasLtMatrixLayoutCreate(self, target: Any, kind: int, rows: int, columns: int, ld: int) -> int:
        if kind not in TYPES or not rows or not columns or ld < rows:
            raise Wrong(INVALID, f"a layout {rows} x {columns} with a leading dimension of {ld}")
        target[0] = self.handle(Layout(kind, rows, columns, ld))
        return SUCCESS

    def cublasLtMatmulPreferenceCreate(self, target: Any) -> int:
        target[0] = self.handle(Preference())
        return SUCCESS

    def _destroyed(self, handle: int, kind: type) -> int:
        self.thing(handle, kind)
        self.objects[handle] = None
        return SUCCESS

    def cublasLtMatmulDescDestroy(self, handle: int) -> int:
        return self._destroyed(handle, Description)

    def cublasLtMatrixLayoutDestroy(self, handle: int) -> int:
        return self._destroyed(handle, Layout)

    def cublasLtMatmulPreferenceDestroy(self, handle: int) -> int:
        return self._destroyed(handle, Preference)

    def _set(self, thing: Any, sizes: dict[int, int], attribute: int, address: int, nbytes: int) -> int:
        if sizes.get(attribute) != nbytes:
            raise Wrong(INVALID, f"attribute {attribute} with {nbytes} bytes")
        signed = attribute == 6 and sizes is LAYOUT_SIZES
        thing.values[attribute] = int.from_bytes(ctypes.string_at(address, nbytes), "little", signed=signed)
        return SUCCESS

    def cublasLtMatmulDescSetAttribute(self, handle: int, attribute: int, address: int, nbytes: int) -> int:
        return self._set(self.thing(handle, Description), PRODUCT_SIZES, attribute, address, nbytes)

    def cublasLtMatrixLayoutSetAttribute(self, handle: int, attribute: int, address: int, nbytes: int) -> int:
        return self._set(self.thing(handle, Layout), LAYOUT_SIZES, attribute, address, nbytes)

    def cublasLtMatmulPreferenceSetAttribute(self, handle: int, attribute: int, address: int, nbytes: int) -> int:
        return self._set(self.thing(handle, Preference), PREFERENCE_SIZES, attribute, address, nbytes)

    # --- products ---

    def _checked(self, product: Description, a: Layout, b: Layout, c: Layout, d: Layout) -> tuple[int, int, int]:
        found = COMBINATIONS.get((product.compute, a.type, b.type))
        if found is None or found[0] != product.scale or d.type not in found[1] or c.type != d.type:
            raise Wrong(NOT_SUPPORTED, f"types {product.compute}, {a.type}, {b.type}, {c.type}, {d.type}")
        swapped = [product.values.get(i, 0) for i in (3, 4)]
        m, k = (a.columns, a.rows) if swapped[0] else (a.rows, a.columns)
        k2, n = (b.columns, b.rows) if swapped[1] else (b.rows, b.columns)
        if (k, m, n) != (k2, d.rows, d.columns) or (c.rows, c.columns) != (d.rows, d.columns):
            raise Wrong(INVALID, f"[{m}, {k}] by [{k2}, {n}] gives no [{d.rows}, {d.columns}]")
        if len({x.batch for x in (a, b, c, d)}) != 1:
            raise Wrong(INVALID, "batches differ")
        if d.batch > 1 and d.strides[0] < d.ld * d.columns:
            raise Wrong(INVALID, "results of a batch overlap")
        epilogue = product.values.get(7, 1)
        if epilogue not in EPILOGUES:
            raise Wrong(INVALID, f"epilogue {epilogue}")
        if epilogue in self.refused or epilogue != 1 and not found[2]:
            raise Wrong(NOT_SUPPORTED, f"no algorithm has epilogue {epilogue}")
        if epilogue & 4 and product.values.get(26, d.type) != d.type:
            raise Wrong(NOT_SUPPORTED, "the bias is of another type than D")
        if a.type == 3 and (swapped != [1, 0] or m % 4 or k % 4 or any(x.ld % 4 for x in (a, b, d))):
            raise Wrong(NOT_SUPPORTED, "int8 is transposed by not transposed, in fours")
        return m, n, k

    def cublasLtMatmulAlgoGetHeuristic(
        self, handle: int, product: int, a: int, b: int, c: int, d: int, preference: int, many: int, results: Any, count: Any
    ) -> int:
        self.thing(handle, Context)
        self.asked += 1
        described, wanted = self.thing(product, Description), self.thing(preference, Preference)
        self._checked(described, *(self.thing(x, Layout) for x in (a, b, c, d)))
        if set(wanted.values) != set(PREFERENCE_SIZES) or many < 1:
            raise Wrong(INVALID, "preferences are missing")
        if described.values.get(7, 1) & 4 and not described.values.get(8):
            raise Wrong(INVALID, "an epilogue with a bias, and no pointer to tell its alignment by")
        needs = [n for n in (self.workspace_nbytes, 0) if n <= wanted.values[1]][:many]
        for i, nbytes in enumerate(needs):
            key = len(self._algorithms) + 1
            alignments = tuple(wanted.values[i] for i in (5, 6, 7, 8))
            self._algorithms[key] = (product, a, b, c, d, described.values.get(7, 1), alignments, nbytes)
            results[i].algo.data[0], results[i].algo.data[7] = key, MAGIC
            results[i].workspaceSize, results[i].state, results[i].wavesCount = nbytes, SUCCESS, 1.0
        count[0] = len(needs)
        return SUCCESS

    def cublasLtMatmul(
        self, handle: int, product: int, alpha: int, a: int, la: int, b: int, lb: int, beta: int, c: int, lc: int, d: int,
        ld: int, algorithm: Any, workspace: int | None, workspace_nbytes: int, stream: int | None,
    ) -> int:  # fmt: skip
        self.thing(handle, Context)
        described = self.thing(product, Description)
        layouts = [self.thing(x, Layout) for x in (la, lb, lc, ld)]
        self._checked(described, *layouts)
        *known, epilogue, alignments, nbytes = self._algorithms[algorithm[0].data[0]]
        if algorithm[0].data[7] != MAGIC or known != [product, la, lb, lc, ld] or epilogue != described.values.get(7, 1):
            raise Wrong(INVALID, "an algorithm of another product")
        if nbytes > workspace_nbytes or nbytes and (workspace is None or workspace % 16):
            raise Wrong(INVALID, f"{workspace_nbytes} bytes of scratch at {workspace}; {nbytes} are needed")
        if nbytes and self.machine is not None and not self.machine.inside(workspace or 0, nbytes):
            raise Wrong(INVALID, "the scratch is in no allocation")
        for address, alignment in zip((a, b, c, d), alignments, strict=True):
            if address % alignment:
                raise Wrong(INVALID, f"{address:#x} is no multiple of {alignment}")
        scale = TYPES[described.scale]
        numbers = [self._number(x, scale) for x in (alpha, beta)]
        bias = described.values.get(8, 0) if epilogue & 4 else 0
        self._views(layouts, (a, b, c, d), bias)  # what it would touch is there
        self.log.append(f"product {layouts[3].rows} x {layouts[3].columns}, epilogue {epilogue}")
        if nbytes:
            ctypes.memset(workspace, 0xFF, nbytes)
        self.start(stream, lambda: self._compute(described, layouts, (a, b, c, d), numbers, bias))
        return SUCCESS

    @staticmethod
    def _number(address: int, dtype: np.dtype) -> float:
        return float(np.frombuffer(ctypes.string_at(address, dtype.itemsize), dtype)[0])

    def _views(
        self, layouts: list[Layout], addresses: tuple[int, ...], bias: int
    ) -> tuple[list[np.ndarray], np.ndarray | None]:
        views = [
            self.array(at, TYPES[x.type], (x.batch, x.rows, x.columns), x.strides)
            for x, at in zip(layouts, addresses, strict=True)
        ]
        vector = self.array(bias, TYPES[layouts[3].type], (layouts[3].rows,), (1,)) if bias else None
        return views, vector

    def _compute(
        self, product: Description, layouts: list[Layout], addresses: tuple[int, ...], numbers: list[float], bias: int
    ) -> None:
        (a, b, c, d), vector = self._views(layouts, addresses, bias)
        wide = np.int64 if layouts[0].type == 3 else np.float64
        x, y = (tf32(v) if product.compute == 77 else v for v in (a, b))
        x, y = x.astype(wide), y.astype(wide)
        x = x.swapaxes(1, 2) if product.values.get(3, 0) else x
        y = y.swapaxes(1, 2) if product.values.get(4, 0) else y
        total = numbers[0] * (x @ y)
        if numbers[1]:
            total = total + numbers[1] * c.astype(wide)
        if vector is not None:
            total = total + vector.astype(wide)[:, None]
        epilogue = product.values.get(7, 1)
        if epilogue & 2:
            total = np.maximum(total, 0)
        if epilogue & 32:
            total = 0.5 * total * (1 + np.tanh(np.sqrt(2 / np.pi) * (total + 0.044715 * total**3)))
        d[...] = total.astype(d.dtype)
