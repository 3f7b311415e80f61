"""cuDNN's graph interface as its header documents it, computing operation graphs in NumPy on the host's memory."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from fake_library import FakeLibrary, Wrong, tf32

from intarsia.device import cudnn as dnn
from intarsia.device.cudnn import Attribute as A
from intarsia.device.cudnn import AttributeType as T
from intarsia.device.cudnn import Kind as K

SUCCESS, BAD_PARAM, NOT_SUPPORTED = 0, 2000, 3000
NOT_FINALIZED = 2004
TYPES = {
    0: np.dtype(np.float32),
    1: np.dtype(np.float64),
    2: np.dtype(np.float16),
    4: np.dtype(np.int32),
    9: np.dtype(ml_dtypes.bfloat16),
}
_BY_AXIS = (A.CUDNN_ATTR_CONVOLUTION_DILATIONS, A.CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES,
            A.CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, A.CUDNN_ATTR_CONVOLUTION_POST_PADDINGS)  # fmt: skip
_CONVOLUTION = (A.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, A.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                A.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y)  # fmt: skip
_POINTWISE = (A.CUDNN_ATTR_OPERATION_POINTWISE_XDESC, A.CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
              A.CUDNN_ATTR_OPERATION_POINTWISE_YDESC)  # fmt: skip
_ATTENTION = (A.CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, A.CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC,
              A.CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, A.CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC,
              A.CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC)  # fmt: skip
_LENGTHS = (A.CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_QDESC, A.CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_KVDESC)
_INSIDE = (A.CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_INPUT_UID, A.CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_OUTPUT_UID)
_BAND = (A.CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_XDESC, A.CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_BDESC)
_BAND_EXTRA = (
    A.CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_LEFT_BOUND_DESC, A.CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_SHIFT_RIGHT_BOUND_DESC,
    A.CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_SEQ_LEN_QDESC, A.CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_SEQ_LEN_KVDESC,
)  # fmt: skip
SINCE = {A.CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_QDESC: 91500, A.CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH: 92100}
_PACK = (A.CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, A.CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, A.CUDNN_ATTR_VARIANT_PACK_WORKSPACE)
ATTRIBUTES: dict[K, dict[A, tuple[T, int]]] = {  # what may be set, of which type, and how many at most
    K.CUDNN_BACKEND_TENSOR_DESCRIPTOR: {
        A.CUDNN_ATTR_TENSOR_UNIQUE_ID: (T.CUDNN_TYPE_INT64, 1), A.CUDNN_ATTR_TENSOR_DATA_TYPE: (T.CUDNN_TYPE_DATA_TYPE, 1),
        A.CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT: (T.CUDNN_TYPE_INT64, 1), A.CUDNN_ATTR_TENSOR_DIMENSIONS: (T.CUDNN_TYPE_INT64, 8),
        A.CUDNN_ATTR_TENSOR_STRIDES: (T.CUDNN_TYPE_INT64, 8), A.CUDNN_ATTR_TENSOR_IS_VIRTUAL: (T.CUDNN_TYPE_BOOLEAN, 1),
        A.CUDNN_ATTR_TENSOR_IS_BY_VALUE: (T.CUDNN_TYPE_BOOLEAN, 1),
    },
    K.CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR: {
        A.CUDNN_ATTR_CONVOLUTION_COMP_TYPE: (T.CUDNN_TYPE_DATA_TYPE, 1),
        A.CUDNN_ATTR_CONVOLUTION_CONV_MODE: (T.CUDNN_TYPE_CONVOLUTION_MODE, 1),
        A.CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS: (T.CUDNN_TYPE_INT64, 1),
        **dict.fromkeys(_BY_AXIS, (T.CUDNN_TYPE_INT64, 6)),
    },
    K.CUDNN_BACKEND_POINTWISE_DESCRIPTOR: {
        A.CUDNN_ATTR_POINTWISE_MODE: (T.CUDNN_TYPE_POINTWISE_MODE, 1),
        A.CUDNN_ATTR_POINTWISE_MATH_PREC: (T.CUDNN_TYPE_DATA_TYPE, 1),
        A.CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP: (T.CUDNN_TYPE_DOUBLE, 1),
    },
    K.CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR: {
        A.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA: (T.CUDNN_TYPE_FLOAT, 1),
        A.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA: (T.CUDNN_TYPE_FLOAT, 1),
        A.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC: (T.CUDNN_TYPE_BACKEND_DESCRIPTOR, 1),
        A.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X: (T.CUDNN_TYPE_BACKEND_DESCRIPTOR, 1),
        A.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W: (T.CUDNN_TYPE_BACKEND_DESCRIPTOR, 1),
        A.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y: (T.CUDNN_TYPE_BACKEND_DESCRIPTOR, 1),
    },
    K.CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: dict.fromkeys(
        (A.CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, *_POINTWISE), (T.CUDNN_TYPE_BACKEND_DESCRIPTOR, 1)
    ),
    K.CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR: {
        **dict.fromkeys((*_ATTENTION, *_LENGTHS), (T.CUDNN_TYPE_BACKEND_DESCRIPTOR, 1)),
        A.CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH: (T.CUDNN_TYPE_BACKEND_DESCRIPTOR, 1),
        **dict.fromkeys(_INSIDE, (T.CUDNN_TYPE_INT64, 1)),
    },
    K.CUDNN_BACKEND_OPERATION_DIAGONAL_BAND_MASK_DESCRIPTOR: {
        **dict.fromkeys((*_BAND, A.CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_YDESC), (T.CUDNN_TYPE_BACKEND_DESCRIPTOR, 1)),
        **dict.fromkeys(_BAND_EXTRA, (T.CUDNN_TYPE_BACKEND_DESCRIPTOR, 1)),
        A.CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_COMPARISON_MODE: (T.CUDNN_TYPE_POINTWISE_MODE, 1),
    },
    K.CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: {
        A.CUDNN_ATTR_OPERATIONGRAPH_HANDLE: (T.CUDNN_TYPE_HANDLE, 1),
        A.CUDNN_ATTR_OPERATIONGRAPH_OPS: (T.CUDNN_TYPE_BACKEND_DESCRIPTOR, 64),
    },
    K.CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR: {
        A.CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH: (T.CUDNN_TYPE_BACKEND_DESCRIPTOR, 1),
        A.CUDNN_ATTR_ENGINEHEUR_MODE: (T.CUDNN_TYPE_HEUR_MODE, 1),
    },
    K.CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: {
        A.CUDNN_ATTR_EXECUTION_PLAN_HANDLE: (T.CUDNN_TYPE_HANDLE, 1),
        A.CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG: (T.CUDNN_TYPE_BACKEND_DESCRIPTOR, 1),
    },
    K.CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR: {
        A.CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS: (T.CUDNN_TYPE_INT64, 64),
        A.CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS: (T.CUDNN_TYPE_VOID_PTR, 64),
        A.CUDNN_ATTR_VARIANT_PACK_WORKSPACE: (T.CUDNN_TYPE_VOID_PTR, 1),
    },
}  # fmt: skip
C_TYPES = {T.CUDNN_TYPE_INT64: ctypes.c_int64, T.CUDNN_TYPE_FLOAT: ctypes.c_float, T.CUDNN_TYPE_DOUBLE: ctypes.c_double,
           T.CUDNN_TYPE_BOOLEAN: ctypes.c_bool, T.CUDNN_TYPE_HANDLE: ctypes.c_void_p, T.CUDNN_TYPE_VOID_PTR: ctypes.c_void_p,
           T.CUDNN_TYPE_BACKEND_DESCRIPTOR: ctypes.c_void_p}  # fmt: skip
OPTIONAL = {A.CUDNN_ATTR_TENSOR_IS_VIRTUAL, A.CUDNN_ATTR_TENSOR_IS_BY_VALUE, A.CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP,
            A.CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *_LENGTHS, *_INSIDE, A.CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH,
            *_BAND_EXTRA}  # fmt: skip
EXACT, TENSOR_CORE, FASTER_AND_WORSE = frozenset[int](), frozenset({0}), frozenset({0, 1})


@dataclass(frozen=True)
class FakeEngine:
    """One of the engines that heuristics know. `modes`: of which heuristics; `nanoseconds`: what a run takes."""

    notes: frozenset[int] = TENSOR_CORE
    workspace_nbytes: int = 4096
    nanoseconds: int = 5000
    modes: frozenset[int] = frozenset({3, 0})


@dataclass
class Descriptor:
    kind: K
    values: dict[A, list[Any]] = field(default_factory=dict)
    finalized: bool = False
    engine: FakeEngine | None = None
    graph: Descriptor | None = None


class Context:
    stream = 0


class FakeCudnn(FakeLibrary):
    """Attributes:
    engines: in the order in which heuristics rank them.
    version: as `cudnnGetVersion` says it.
    knows: which graphs have engines: names of operations, after each other.
    """

    signatures = dnn.SIGNATURES
    internal_error = 4000
    bad_parameter = BAD_PARAM
    unsupported = frozenset({NOT_SUPPORTED})

    def __init__(self, machine: Any = None) -> None:
        super().__init__(machine)
        self.engines = [FakeEngine(), FakeEngine(EXACT, 0, 9000, frozenset({2}))]
        self.version = 92800
        self.of_cuda = 13000
        self.start_error = 0
        self.knows: set[str] | None = None

    def cudnnGetVersion(self) -> int:
        return self.version

    def cudnnGetCudartVersion(self) -> int:
        return self.of_cuda

    def cudnnGetErrorString(self, status: int) -> bytes:
        return b"CUDNN_STATUS_%d" % status

    def cudnnGetLastErrorString(self, buffer: Any, nbytes: int) -> None:
        buffer.value, self.last = self.last.encode()[: nbytes - 1], ""

    def cudnnCreate(self, handle: Any) -> int:
        if self.start_error:
            return self.start_error
        assert self.machine is None or self.machine.current, "no context is the thread's"
        handle[0] = self.handle(Context())
        return SUCCESS

    def cudnnDestroy(self, handle: int) -> int:
        self.thing(handle, Context)
        self.objects[handle] = None
        return SUCCESS

    def cudnnSetStream(self, handle: int, stream: int | None) -> int:
        self.thing(handle, Context).stream = stream or 0
        return SUCCESS

    # --- descriptors ---

    def cudnnBackendCreateDescriptor(self, kind: int, target: Any) -> int:
        target[0] = self.handle(Descriptor(K(kind)))
        return SUCCESS

    def cudnnBackendDestroyDescriptor(self, pointer: int) -> int:
        self.thing(pointer, Descriptor)
        self.objects[pointer] = None
        return SUCCESS

    def cudnnBackendSetAttribute(self, pointer: int, attribute: int, what: int, count: int, address: int) -> int:
        one = self.thing(pointer, Descriptor)
        known = ATTRIBUTES.get(one.kind, {}).get(A(attribute))
        if SINCE.get(A(attribute), 0) > self.version:
            raise Wrong(NOT_SUPPORTED, f"{A(attribute).name} came later")
        if one.finalized or known is None or known[0] != what or not 0 < count <= known[1]:
            raise Wrong(BAD_PARAM, f"{A(attribute).name} of {one.kind.name} with {count} {T(what).name}")
        values = (C_TYPES.get(T(what), ctypes.c_int) * count).from_address(address)
        found = list(values)
        if what == T.CUDNN_TYPE_BACKEND_DESCRIPTOR:
            found = [self.thing(v, Descriptor) for v in found]
            if any(not v.finalized for v in found):
                raise Wrong(NOT_FINALIZED, f"{A(attribute).name} is not finalized")
        elif what == T.CUDNN_TYPE_HANDLE:
            found = [self.thing(v, Context) for v in found]
        one.values[A(attribute)] = found
        return SUCCESS

    def cudnnBackendFinalize(self, pointer: int) -> int:
        one = self.thing(pointer, Descriptor)
        missing = [a.name for a in ATTRIBUTES.get(one.kind, {}) if a not in one.values and a not in OPTIONAL]
        if one.finalized or missing:
            raise Wrong(BAD_PARAM, f"{one.kind.name} lacks {', '.join(missing)}")
        check = getattr(self, f"_{one.kind.name.removeprefix('CUDNN_BACKEND_').removesuffix('_DESCRIPTOR').lower()}", None)
        if check is not None:
            check(one)
        one.finalized = True
        return SUCCESS

    def cudnnBackendGetAttribute(
        self, pointer: int, attribute: int, what: int, most: int, count: Any, address: int | None
    ) -> int:
        one = self.thing(pointer, Descriptor)
        if not one.finalized:
            raise Wrong(NOT_FINALIZED, f"{A(attribute).name} of a descriptor that is not finalized")
        name = A(attribute)
        if name is A.CUDNN_ATTR_ENGINEHEUR_RESULTS:
            graph, mode = one.values[A.CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH][0], one.values[A.CUDNN_ATTR_ENGINEHEUR_MODE][0]
            found = [e for e in self.engines if mode in e.modes]
            for i, engine in enumerate(found[:most]):
                given = self.thing((ctypes.c_void_p * most).from_address(address or 0)[i], Descriptor)
                if given.kind is not K.CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:
                    raise Wrong(BAD_PARAM, "results are engine configurations")
                given.engine, given.graph, given.finalized = engine, graph, True
            count[0] = min(len(found), most) if most else len(found)
        elif name is A.CUDNN_ATTR_ENGINECFG_ENGINE:
            given = self.thing((ctypes.c_void_p * 1).from_address(address or 0)[0], Descriptor)
            if given.kind is not K.CUDNN_BACKEND_ENGINE_DESCRIPTOR or what != T.CUDNN_TYPE_BACKEND_DESCRIPTOR:
                raise Wrong(BAD_PARAM, "an engine is asked for")
            given.engine, given.finalized = one.engine, True
            count[0] = 1
        elif name is A.CUDNN_ATTR_ENGINE_NUMERICAL_NOTE and one.engine is not None:
            notes = sorted(one.engine.notes)[:most]
            (ctypes.c_int * most).from_address(address or 0)[: len(notes)] = notes
            count[0] = len(notes)
        elif name is A.CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE and one.engine is not None:
            if what != T.CUDNN_TYPE_INT64:
                raise Wrong(BAD_PARAM, "the size is an INT64")
            ctypes.c_int64.from_address(address or 0).value = one.engine.workspace_nbytes
            count[0] = 1
        else:
            raise Wrong(BAD_PARAM, f"{name.name} of {one.kind.name}")
        return SUCCESS

    # --- what finalizing checks ---

    def _tensor(self, one: Descriptor) -> None:
        shape, strides = one.values[A.CUDNN_ATTR_TENSOR_DIMENSIONS], one.values[A.CUDNN_ATTR_TENSOR_STRIDES]
        (alignment,), (kind,) = one.values[A.CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT], one.values[A.CUDNN_ATTR_TENSOR_DATA_TYPE]
        if len(shape) != len(strides) or min((*shape, *strides)) < 1:
            raise Wrong(BAD_PARAM, f"dimensions {shape}, strides {strides}")
        if alignment < 1 or alignment % TYPES[kind].itemsize:
            raise Wrong(BAD_PARAM, f"an alignment of {alignment}")

    def _convolution(self, one: Descriptor) -> None:
        (rank,) = one.values[A.CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS]
        lists = [v for a, v in one.values.items() if ATTRIBUTES[one.kind][a][1] == 6]
        if rank < 2 or any(len(v) != rank for v in lists):
            raise Wrong(BAD_PARAM, f"{rank} spatial dimensions and {lists}")

    def _operation_convolution_forward(self, one: Descriptor) -> None:
        x, w, y = (_shape(one.values[a][0]) for a in _CONVOLUTION)
        how = one.values[A.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC][0].values
        if len({len(x), len(w), len(y)}) != 1 or x[1] % w[1] or w[0] % (x[1] // w[1]):
            raise Wrong(BAD_PARAM, f"channels of {x} and {w}")
        spans = [(k - 1) * d + 1 for k, d in zip(w[2:], how[A.CUDNN_ATTR_CONVOLUTION_DILATIONS], strict=True)]
        pads = zip(how[A.CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS], how[A.CUDNN_ATTR_CONVOLUTION_POST_PADDINGS], strict=True)
        steps = how[A.CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES]
        out = [(n + sum(p) - span) // s + 1 for n, p, span, s in zip(x[2:], pads, spans, steps, strict=True)]
        if y != [x[0], w[0], *out]:
            raise Wrong(BAD_PARAM, f"{x} by {w} gives {[x[0], w[0], *out]}, not {y}")

    def _operation_pointwise(self, one: Descriptor) -> None:
        x, y = (
            _shape(one.values[a][0]) for a in (A.CUDNN_ATTR_OPERATION_POINTWISE_XDESC, A.CUDNN_ATTR_OPERATION_POINTWISE_YDESC)
        )
        mode = one.values[A.CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR][0].values[A.CUDNN_ATTR_POINTWISE_MODE][0]
        b = one.values.get(A.CUDNN_ATTR_OPERATION_POINTWISE_BDESC)
        if (b is None) == (mode == dnn.Pointwise.CUDNN_POINTWISE_ADD) or x != y:
            raise Wrong(BAD_PARAM, f"mode {mode} from {x} to {y}")
        if b is not None and (
            len(_shape(b[0])) != len(y) or any(m not in (1, n) for m, n in zip(_shape(b[0]), y, strict=True))
        ):
            raise Wrong(BAD_PARAM, f"{_shape(b[0])} is not spread over {y}")

    def _operation_sdpa_fwd(self, one: Descriptor) -> None:
        q, k, v, o, scale = (_shape(one.values[a][0]) for a in _ATTENTION)
        kinds = {one.values[a][0].values[A.CUDNN_ATTR_TENSOR_DATA_TYPE][0] for a in _ATTENTION[:4]}
        if q[0] != k[0] or k[:3] != v[:3] or q[3] != k[3] or o != [*q[:3], v[3]] or scale != [1, 1, 1, 1] or q[1] % k[1]:
            raise Wrong(BAD_PARAM, f"attention of {q}, {k}, {v} to {o}")
        if not kinds <= {2, 9} or len(kinds) != 1 or max(q[3], v[3]) > 256 or q[3] % 8 or v[3] % 8:
            raise Wrong(NOT_SUPPORTED, "attention is of float16 or bfloat16, and heads of eights")
        lengths = [one.values[a][0] for a in _LENGTHS if a in one.values]
        if len(lengths) == 1 or any(_shape(t) != [q[0], 1, 1, 1] or _type(t) != 4 for t in lengths):
            raise Wrong(BAD_PARAM, f"lengths of shapes {[_shape(t) for t in lengths]}")
        inside = one.values.get(A.CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH)
        if (inside is None) != (len([a for a in _INSIDE if a in one.values]) == 0):
            raise Wrong(BAD_PARAM, "a graph inside, and the numbers of its tensors")
        if inside is not None:
            ops = inside[0].values[A.CUDNN_ATTR_OPERATIONGRAPH_OPS]
            first, last = (one.values[a][0] for a in _INSIDE)
            if _number(_operands(ops[0])[0][0]) != first or _number(_operands(ops[-1])[1]) != last:
                raise Wrong(BAD_PARAM, f"the graph inside goes from another tensor than {first}, or to another than {last}")
            if _shape(_operands(ops[-1])[1]) != [*q[:3], k[2]] or not _virtual(_operands(ops[-1])[1]):
                raise Wrong(BAD_PARAM, "the graph inside makes no scores")

    def _operation_diagonal_band_mask(self, one: Descriptor) -> None:
        x, fill = (one.values[a][0] for a in _BAND)
        y = one.values[A.CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_YDESC][0]
        left, right = (one.values.get(a) for a in _BAND_EXTRA[:2])
        mode = one.values[A.CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_COMPARISON_MODE][0]
        if _shape(x) != _shape(y) or _shape(fill) != [1, 1, 1, 1] or left is not None and right is not None:
            raise Wrong(BAD_PARAM, f"a band of {_shape(x)} in {_shape(y)}")
        if mode != (302 if left is not None else 303):
            raise Wrong(BAD_PARAM, f"a band that compares by {mode}")
        if len([a for a in _BAND_EXTRA[2:] if a in one.values]) == 1:
            raise Wrong(BAD_PARAM, "lengths of queries and keys come together")

    def _operationgraph(self, one: Descriptor) -> None:
        if _is_inside(one):
            return
        made: set[int] = set()
        seen: dict[int, Descriptor] = {}
        names = []
        for op in one.values[A.CUDNN_ATTR_OPERATIONGRAPH_OPS]:
            inputs, output = _operands(op)
            names.append(_name(op))
            for t in (*inputs, output):
                if seen.setdefault(_number(t), t) is not t:
                    raise Wrong(BAD_PARAM, f"two tensors have the number {_number(t)}")
            if any(_virtual(t) and _number(t) not in made for t in inputs):
                raise Wrong(BAD_PARAM, "a virtual tensor is read that nothing wrote")
            made.add(_number(output))
        if _virtual(seen[_number(output)]):
            raise Wrong(BAD_PARAM, "the result is virtual")
        if self.knows is not None and " ".join(names) not in self.knows:
            raise Wrong(NOT_SUPPORTED, f"no engine knows {' '.join(names)}")

    def _execution_plan(self, one: Descriptor) -> None:
        (given,) = one.values[A.CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG]
        if given.engine is None:
            raise Wrong(BAD_PARAM, "a configuration without an engine")
        one.engine, one.graph = given.engine, given.graph

    def _variant_pack(self, one: Descriptor) -> None:
        numbers, pointers = (
            one.values[a] for a in (A.CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, A.CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)
        )
        if len(numbers) != len(pointers) or len(set(numbers)) != len(numbers) or None in pointers:
            raise Wrong(BAD_PARAM, f"numbers {numbers} and pointers {pointers}")

    # --- running ---

    def cudnnBackendExecute(self, handle: int, plan: int, pack: int) -> int:
        context, planned, given = self.thing(handle, Context), self.thing(plan, Descriptor), self.thing(pack, Descriptor)
        if not planned.finalized or not given.finalized or planned.kind is not K.CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
            raise Wrong(NOT_FINALIZED, "a plan or pack that is not finalized")
        engine, graph = planned.engine, planned.graph
        numbers, pointers, (scratch,) = (given.values[a] for a in _PACK)
        places = dict(zip(numbers, pointers, strict=True))
        if engine.workspace_nbytes and (scratch is None or scratch % 16):
            raise Wrong(BAD_PARAM, f"scratch at {scratch}")
        if engine.workspace_nbytes and self.machine is not None and not self.machine.inside(scratch, engine.workspace_nbytes):
            raise Wrong(BAD_PARAM, "the scratch is in no allocation")
        ops = graph.values[A.CUDNN_ATTR_OPERATIONGRAPH_OPS]
        real = {_number(t): t for op in _all(ops) for t in (*_operands(op)[0], _operands(op)[1]) if not _virtual(t)}
        if set(real) != set(places):
            raise Wrong(BAD_PARAM, f"tensors {sorted(real)} and addresses of {sorted(places)}")
        for number, t in real.items():
            if places[number] % t.values[A.CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT][0]:
                raise Wrong(BAD_PARAM, f"tensor {number} at {places[number]:#x}")
            self._memory(t, places[number])
        self.log.append(" ".join(_name(op) for op in ops))

        def run() -> None:
            if self.machine is not None:
                self.machine.clock_ns += engine.nanoseconds
            self._compute(ops, places, engine)

        self.start(context.stream, run)
        return SUCCESS

    def _memory(self, t: Descriptor, address: int) -> np.ndarray:
        dtype, shape = TYPES[t.values[A.CUDNN_ATTR_TENSOR_DATA_TYPE][0]], tuple(_shape(t))
        if t.values.get(A.CUDNN_ATTR_TENSOR_IS_BY_VALUE, [False])[0]:
            return np.frombuffer(ctypes.string_at(address, dtype.itemsize), dtype).reshape(shape)
        return self.array(address, dtype, shape, tuple(t.values[A.CUDNN_ATTR_TENSOR_STRIDES]))

    def _compute(self, ops: list[Descriptor], places: dict[int, int], engine: FakeEngine) -> None:
        values: dict[int, np.ndarray] = {}

        def read(t: Descriptor) -> np.ndarray:
            found = values[_number(t)] if _virtual(t) else self._memory(t, places[_number(t)])
            return (
                tf32(found).astype(np.float64) if found.dtype == np.float32 and 0 in engine.notes else found.astype(np.float64)
            )

        for op in ops:
            inputs, output = _operands(op)
            result = _FUNCTIONS[op.kind](op, *map(read, inputs)) if op.kind in _FUNCTIONS else _attended(op, read)
            if _virtual(output):
                values[_number(output)] = result
            else:
                target = self._memory(output, places[_number(output)])
                target[...] = result.astype(target.dtype)


def _shape(t: Descriptor) -> list[int]:
    return t.values[A.CUDNN_ATTR_TENSOR_DIMENSIONS]


def _number(t: Descriptor) -> int:
    return t.values[A.CUDNN_ATTR_TENSOR_UNIQUE_ID][0]


def _virtual(t: Descriptor) -> bool:
    return bool(t.values.get(A.CUDNN_ATTR_TENSOR_IS_VIRTUAL, [False])[0])


def _type(t: Descriptor) -> int:
    return t.values[A.CUDNN_ATTR_TENSOR_DATA_TYPE][0]


def _is_inside(graph: Descriptor) -> bool:
    """Whether a graph begins with a virtual tensor, and is what attention does to its scores."""
    inputs, _ = _operands(graph.values[A.CUDNN_ATTR_OPERATIONGRAPH_OPS][0])
    return _virtual(inputs[0])


def _inner(op: Descriptor) -> list[Descriptor]:
    found = op.values.get(A.CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH)
    return found[0].values[A.CUDNN_ATTR_OPERATIONGRAPH_OPS] if found is not None else []


def _all(ops: list[Descriptor]) -> list[Descriptor]:
    return [*ops, *(inner for op in ops for inner in _inner(op))]


def _operands(op: Descriptor) -> tuple[list[Descriptor], Descriptor]:
    if op.kind is K.CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR:
        q, k, v, o, scale = (op.values[a][0] for a in _ATTENTION)
        return [q, k, v, scale, *(op.values[a][0] for a in _LENGTHS if a in op.values)], o
    if op.kind is K.CUDNN_BACKEND_OPERATION_DIAGONAL_BAND_MASK_DESCRIPTOR:
        inputs = [op.values[a][0] for a in (*_BAND, *_BAND_EXTRA) if a in op.values]
        return inputs, op.values[A.CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_YDESC][0]
    names = _CONVOLUTION if op.kind is K.CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR else _POINTWISE
    *inputs, output = (op.values[a][0] for a in names if a in op.values)
    return inputs, output


def _name(op: Descriptor) -> str:
    if op.kind is K.CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        how = op.values[A.CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR][0]
        return dnn.Pointwise(how.values[A.CUDNN_ATTR_POINTWISE_MODE][0]).name.removeprefix("CUDNN_POINTWISE_").lower()
    if op.kind is K.CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
        return "convolve"
    if op.kind is K.CUDNN_BACKEND_OPERATION_DIAGONAL_BAND_MASK_DESCRIPTOR:
        return "left" if _BAND_EXTRA[0] in op.values else "right"
    lengths = ["lengths"] if _LENGTHS[0] in op.values else []
    inner = [_name(inner) for inner in _inner(op)]
    return f"attend({', '.join([*lengths, *inner])})" if lengths or inner else "attend"


def _convolved(op: Descriptor, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    how = op.values[A.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC][0].values
    low, high = how[A.CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS], how[A.CUDNN_ATTR_CONVOLUTION_POST_PADDINGS]
    steps, spread = how[A.CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES], how[A.CUDNN_ATTR_CONVOLUTION_DILATIONS]
    return convolved(x, w, list(zip(low, high, strict=True)), steps, spread)


def convolved(x: np.ndarray, w: np.ndarray, pads: list[tuple[int, int]], steps: list[int], spread: list[int]) -> np.ndarray:
    """A convolution by its definition, place by place of the kernel."""
    padded = np.pad(x, [(0, 0), (0, 0), *pads])
    spans = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], spread, strict=True)]
    out = [(n - span) // s + 1 for n, span, s in zip(padded.shape[2:], spans, steps, strict=True)]
    groups = x.shape[1] // w.shape[1]
    total = np.zeros((x.shape[0], w.shape[0], *out))
    each_in, each_out = w.shape[1], w.shape[0] // groups
    for place in np.ndindex(*w.shape[2:]):
        cut = tuple(slice(p * d, p * d + (n - 1) * s + 1, s) for p, d, n, s in zip(place, spread, out, steps, strict=True))
        for g in range(groups):
            part = padded[(slice(None), slice(g * each_in, (g + 1) * each_in), *cut)]
            rows = slice(g * each_out, (g + 1) * each_out)
            total[:, rows] += np.einsum("nc...,mc->nm...", part, w[(rows, slice(None), *place)])
    return total


def _pointed(op: Descriptor, x: np.ndarray, b: np.ndarray | None = None) -> np.ndarray:
    how, name = op.values[A.CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR][0], _name(op)
    if b is not None:
        assert name == "add"
        return x + b
    clip = how.values.get(A.CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, [math.inf])[0]
    functions = {
        "relu_fwd": lambda: np.minimum(np.maximum(x, 0), clip), "tanh_fwd": lambda: np.tanh(x),
        "gelu_fwd": lambda: 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
        "gelu_approx_tanh_fwd": lambda: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    }  # fmt: skip
    return functions[name]()


def _attended(op: Descriptor, read: Callable[[Descriptor], np.ndarray]) -> np.ndarray:
    """Powers of two are taken, as engines do: what overflows there is infinite, and infinity less infinity no number."""
    q, k, v, _, scale = (read(op.values[a][0]) if a is not _ATTENTION[3] else None for a in _ATTENTION)
    assert q is not None and k is not None and v is not None and scale is not None
    each = q.shape[1] // k.shape[1]
    k, v = (np.repeat(t, each, 1) for t in (k, v))
    scores = scale * (q @ k.swapaxes(2, 3))
    for inner in _inner(op):
        if inner.kind is K.CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
            scores = scores + read(inner.values[A.CUDNN_ATTR_OPERATION_POINTWISE_BDESC][0])
        else:
            scores = _banded(inner, scores, read)
    if _LENGTHS[0] in op.values:
        rows, keys = (read(op.values[a][0]) for a in _LENGTHS)
        assert (rows == scores.shape[2]).all()
        scores = np.where(np.arange(scores.shape[3]) < keys, scores, -np.inf)
    with np.errstate(over="ignore", invalid="ignore"):
        twos = (scores.astype(np.float32) * np.float32(math.log2(math.e))).astype(np.float64)
        powers = np.exp2(twos - twos.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True) @ v


def _banded(op: Descriptor, scores: np.ndarray, read: Callable[[Descriptor], np.ndarray]) -> np.ndarray:
    fill = read(op.values[_BAND[1]][0])
    left, right, queries, keys = (read(op.values[a][0]) if a in op.values else None for a in _BAND_EXTRA)
    place = np.arange(scores.shape[2])[:, None] + (0 if keys is None or queries is None else keys - queries)
    column = np.arange(scores.shape[3])
    kept = column + left > place if left is not None else place + (0 if right is None else right) >= column
    return np.where(kept, scores, fill)


_FUNCTIONS = {
    K.CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR: _convolved,
    K.CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: _pointed,
}
