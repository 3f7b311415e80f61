"""Whole models made wrong: any field of a valid model's protobuf changed at random, and its bytes.

Run as a program it reads a line `MODEL SEED` for each case, runs it on both providers, and writes a line of
JSON.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import Message
from mutations import EXTREME, FLOATS, WORDS, Case, answer_cases
from onnx import helper, numpy_helper

HEAD = '<ir_version: 10, opset_import: ["" : 21, "ai.onnx.ml" : 4, "com.microsoft" : 1, "own" : 1]>\n'
TEXTS = {
    "convolutions": """g (float[N,3,8,8] x) => (float[N,4] y)
        <float[4,3,3,3] w, float[4] b, float[4,4,1,1] v, float[4] s, float[4] t, float[4] m, float[4] q, float[4,4] p> {
        a = Conv<pads=[1,1,1,1], strides=[2,2]>(x, w, b)
        n = BatchNormalization(a, s, t, m, q)
        r = Relu(n)
        c = Conv<kernel_shape=[1,1]>(r, v)
        d = Add(c, r)
        e = MaxPool<kernel_shape=[2,2], strides=[1,1]>(d)
        f = GlobalAveragePool(e)
        h = Flatten(f)
        k = Gemm<transB=1>(h, p, b)
        y = Softmax<axis=-1>(k)
    }""",
    "attention": """g (float[B,S,8] x, bool[B,1,S,S] mask) => (float[B,S,8] y)
        <float[8,24] w, float[8,8] o, float[8] g, int64[4] heads, int64[1] third = {2}, int64[3] flat, float scale> {
        l = LayerNormalization<epsilon=0.00001>(x, g)
        p = MatMul(l, w)
        q, k, v = Split<axis=2, num_outputs=3>(p)
        qs = Reshape(q, heads)
        ks = Reshape(k, heads)
        vs = Reshape(v, heads)
        qt = Transpose<perm=[0,2,1,3]>(qs)
        kt = Transpose<perm=[0,2,3,1]>(ks)
        vt = Transpose<perm=[0,2,1,3]>(vs)
        sc = MatMul(qt, kt)
        sm = Mul(sc, scale)
        low = Constant<value = float {-10000.0}>()
        sw = Where(mask, sm, low)
        pr = Softmax<axis=3>(sw)
        c = MatMul(pr, vt)
        ct = Transpose<perm=[0,2,1,3]>(c)
        cf = Reshape(ct, flat)
        u = MatMul(cf, o)
        y = Add(u, x)
    }""",
    "sizes": """g (float[N,6] x, int64[2] starts) => (float[A,B] y, int64[1] z)
        <int64[1] one = {1}, int64[1] big = {9223372036854775807}, int64[2] axes = {0, 1}, int64[1] two = {2},
            int64 zero = {0}> {
        s = Shape(x)
        n = Gather<axis=0>(s, zero)
        n1 = Unsqueeze(n, two2)
        c = Concat<axis=0>(n1, two, minus)
        r = Reshape(x, c)
        rs = Shape(r)
        e = Expand(r, rs)
        f = Flatten<axis=1>(e)
        ends = Shape(f)
        k = Slice(f, starts, ends, axes)
        t = Tile(k, ends2)
        i = NonZero(t)
        pads = ConstantOfShape<value = int64[1] {1}>(four)
        pp = Pad(t, pads)
        ra = Range(zero, n, onescalar)
        cs = CumSum(pp, zero)
        v, ix = TopK(cs, one)
        w = Resize<mode="linear">(cs, , scales)
        y = Identity(w)
        z = ReduceSum(ra, one0)
    }""",
    "control": """g (float[3] x, int64 n, bool c) => (float[3] y, float[K,3] z, float[3] u)
        <bool yes = {1}> {
        y, z = Loop<body = b (int64 i, bool k, float[3] s) => (bool k2, float[3] s2, float[3] o)
            { k2 = Identity(k)  s2 = Add(s, x)  o = If<then_branch = t () => (float[3] p) { p = Mul(s2, x) },
                else_branch = e () => (float[3] p) { p = Neg(s2) }>(c) }>(n, yes, x)
        f, u2 = Scan<num_scan_inputs=1, body = d (float[3] a, float[3] r) => (float[3] a2, float[3] v)
            { a2 = Add(a, r)  v = Mul(a2, a2) }>(x, z)
        u = Identity(f)
    }""",
    "recurrent": """g (float[T,B,4] x, float[2,B,3] h) => (float[T,2,B,3] y, float[2,B,3] yh, float[T,1,B,3] z)
        <float[2,12,4] w, float[2,12,3] r, float[2,24] b, float[1,9,4] gw, float[1,9,3] gr> {
        y, yh, yc = LSTM<hidden_size=3, direction="bidirectional">(x, w, r, b, , h)
        z = GRU<hidden_size=3, linear_before_reset=1>(x, gw, gr)
    }""",
    "bytes": """g (float[N,3,6,6] x) => (float[N,4,6,6] y, float[N,5] z)
        <float s = {0.02}, uint8 o = {128}, int8[4,3,3,3] w, float[4] ws, int8[4] wz, int32[4] b, uint8[108,5] m,
            uint8 mz = {3}> {
        q = QuantizeLinear(x, s, o)
        c = QLinearConv<pads=[1,1,1,1]>(q, s, o, w, ws, wz, s, o, b)
        y = DequantizeLinear(c, s, o)
        f = Flatten(x)
        d, ds, dz = DynamicQuantizeLinear(f)
        i = MatMulInteger(d, m, dz, mz)
        j = Cast<to=1>(i)
        z = Mul(j, ds)
    }""",
    "decoder": """g (int64[B,S] ids, float[B,2,P,4] past) => (float[B,2,T,4] present, float[B,S,10] logits)
        <float[10,8] table, int64[4] heads, int64[3] flat, float[8,10] w, int64[1] first, int64[1] last, int64[1] axis> {
        e = Gather(table, ids)
        r = Reshape(e, heads)
        t = Transpose<perm=[0,2,1,3]>(r)
        present = Concat<axis=2>(past, t)
        l = Slice(present, first, last, axis)
        k = Transpose<perm=[0,1,3,2]>(present)
        s = MatMul(t, k)
        u = Trilu<upper=0>(s)
        p = Softmax(u)
        v = MatMul(p, present)
        vt = Transpose<perm=[0,2,1,3]>(v)
        vf = Reshape(vt, flat)
        logits = MatMul(vf, w)
    }""",
    "classical": """g (float[N,3] x, string[M] s) => (int64[N] label, seq(map(int64, float)) maps, float[N,1] trees,
            float[K] grams)
        {
        label, p = ai.onnx.ml.LinearClassifier<classlabels_ints=[0,1], coefficients=[1.0,2.0,3.0,-1.0,-2.0,-3.0],
            intercepts=[0.1,0.2],
            post_transform="SOFTMAX">(x)
        maps = ai.onnx.ml.ZipMap<classlabels_int64s=[0,1]>(p)
        trees = ai.onnx.ml.TreeEnsembleRegressor<n_targets=1, nodes_treeids=[0,0,0], nodes_nodeids=[0,1,2],
            nodes_featureids=[1,0,0],
            nodes_values=[0.5,0.0,0.0], nodes_modes=["BRANCH_LEQ","LEAF","LEAF"], nodes_truenodeids=[1,0,0],
            nodes_falsenodeids=[2,0,0],
            target_treeids=[0,0], target_nodeids=[1,2], target_ids=[0,0], target_weights=[1.0,2.0]>(x)
        lower = StringNormalizer<case_change_action="LOWER">(s)
        grams = TfIdfVectorizer<mode="TF", min_gram_length=1, max_gram_length=2, max_skip_count=1,
            ngram_counts=[0,2], ngram_indexes=[0,1,2],
            pool_strings=["a","b","a","b"]>(lower)
    }""",
    "sequences": """g (seq(float[A,2]) x, int64 at) => (float[C,2] y, int64 n, float[A,2] z)
        <int64 two = {2}> {
        one = SequenceAt(x, at)
        more = SequenceInsert(x, one)
        mapped = SequenceMap<body = b (float[A,2] i) => (float[A,2] o) { o = Exp(i) }>(more)
        y = ConcatFromSequence<axis=0>(mapped)
        n = SequenceLength(mapped)
        parts = SplitToSequence<axis=0>(y, two)
        z = SequenceAt(parts, at)
    }""",
    "functions": """g (float[N,4] x) => (float[N,4] y) {
        a = own.f<alpha=0.5>(x)
        y = own.h(a, x)
    }
    <opset_import: ["" : 21], domain: "own">
    f <alpha> (i) => (o) { k = Constant<value_float: float = @alpha>()  o = Mul(i, k) }
    <opset_import: ["" : 21, "own" : 1], domain: "own">
    h (i, j) => (o) { s = own.f<alpha=2.0>(i)  o = Add(s, j) }
    """,
}  # fmt: skip
VALUES: dict[str, list[Any]] = {
    "heads": [0, 0, 2, 4], "flat": [0, 0, 8], "two2": [0], "minus": [-1], "four": [4], "ends2": [1, 1], "one0": [0],
    "scales": [1.0, 2.0], "first": [0], "last": [2**31], "axis": [2],
}  # fmt: skip
FEEDS: dict[str, dict[str, Any]] = {
    "convolutions": {"x": (2, 3, 8, 8)},
    "attention": {"x": (1, 3, 8), "mask": np.ones((1, 1, 3, 3), bool)},
    "sizes": {"x": (3, 6), "starts": np.int64([0, 1])},
    "control": {"x": (3,), "n": np.int64(3), "c": np.bool_(True)},
    "recurrent": {"x": (3, 2, 4), "h": (2, 2, 3)},
    "bytes": {"x": (1, 3, 6, 6)},
    "decoder": {"ids": np.int64([[1, 2]]), "past": (1, 2, 3, 4)},
    "classical": {"x": (2, 3), "s": np.array(["A", "b", "a"], object)},
    "sequences": {"x": [np.ones((2, 2), np.float32)], "at": np.int64(-1)},
    "functions": {"x": (2, 4)},
}
FLIPPED = (0xFF, 0x80, 0x01, 0x10)


@cache
def model_of(name: str) -> bytes:
    """The valid model, with numbers for its initialisers."""
    text, rng = TEXTS[name], np.random.default_rng(0)
    model = onnx.parser.parse_model(HEAD + text) if name != "sizes" else onnx.parser.parse_model(HEAD + _with_sizes(text))
    for info in list(model.graph.value_info):
        kind = info.type.tensor_type
        if info.name in {n for node in model.graph.node for n in node.output}:
            continue
        shape = [d.dim_value for d in kind.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        made = np.array(VALUES[info.name], dtype) if info.name in VALUES else rng.integers(1, 3, shape).astype(dtype)
        model.graph.initializer.append(numpy_helper.from_array(made.reshape(shape), info.name))
    del model.graph.value_info[:]
    return model.SerializeToString()


def _with_sizes(text: str) -> str:
    more = "int64[1] two2, int64[1] minus, int64[1] four, int64[2] ends2, int64 onescalar = {1}, int64[1] one0, float[2] scales"
    return text.replace("int64 zero = {0}>", f"int64 zero = {{0}}, {more}>")


def feeds_of(name: str) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {k: rng.standard_normal(v).astype(np.float32) if isinstance(v, tuple) else v for k, v in FEEDS[name].items()}


# --- changes ---


def fields_of_message(message: Message, path: str = "") -> Iterator[tuple[Message, Any, str]]:
    """(message, field, where) of everything that is set."""
    for field, value in message.ListFields():
        where = f"{path}.{field.name}"
        yield message, field, where
        if field.message_type is not None:
            several = value if field.is_repeated else [value]
            for i, inner in enumerate(several):
                yield from fields_of_message(inner, f"{where}[{i}]" if field.is_repeated else where)


def _names(message: Message) -> list[str]:
    found = set()
    for inner, field, _ in fields_of_message(message):
        if field.cpp_type == field.CPPTYPE_STRING and field.name != "doc_string":
            value = getattr(inner, field.name)
            for item in value if field.is_repeated else [value]:
                found.add(item.decode("utf-8", "replace") if isinstance(item, bytes) else item)
    return sorted(found)


def _other(field: Any, value: Any, names: list[str], rng: random.Random) -> Any:
    if field.cpp_type == field.CPPTYPE_STRING:
        if field.type == field.TYPE_BYTES:
            flipped = bytearray(value)
            if flipped and rng.random() < 0.5:
                flipped[rng.randrange(len(flipped))] ^= rng.choice(FLIPPED)
                return bytes(flipped)
            return bytes(value[: rng.randrange(len(value) + 1)]) + rng.choice((b"", b"\xff\xfe", b"\0" * 9))
        return rng.choice((rng.choice(names), rng.choice(names), rng.choice(names), rng.choice(WORDS)))
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return rng.choice(FLOATS)
    low, high = {field.CPPTYPE_INT32: (-(2**31), 2**31 - 1), field.CPPTYPE_UINT64: (0, 2**64 - 1)}.get(
        field.cpp_type, (-(2**63), 2**63 - 1)
    )
    return max(low, min(high, rng.choice((*EXTREME, value + 1, value - 1, -value))))


def change(model: Message, rng: random.Random) -> str:
    """One field changed; what was done, in words."""
    found = list(fields_of_message(model))
    message, field, where = rng.choice(found)
    names = _names(model)
    if not field.is_repeated:
        if field.message_type is not None:
            if rng.random() < 0.5:
                message.ClearField(field.name)
                return f"{where} cleared"
            others = [v for m, f, _ in found if f.message_type is field.message_type for v in _several(m, f)]
            other = type(getattr(message, field.name))()
            other.CopyFrom(rng.choice(others))
            getattr(message, field.name).CopyFrom(other)
            return f"{where} replaced by another"
        if field.enum_type is not None:
            setattr(message, field.name, rng.choice([v.number for v in field.enum_type.values]))
        elif rng.random() < 0.1:
            message.ClearField(field.name)
        else:
            setattr(message, field.name, _other(field, getattr(message, field.name), names, rng))
        return f"{where} = {getattr(message, field.name)!r}"[:200]
    values = getattr(message, field.name)
    at = rng.randrange(len(values))
    how = rng.choice(("less", "twice", "other", "other", "order"))
    if field.message_type is not None:
        copies = [type(v).FromString(v.SerializeToString()) for v in values]
    else:
        copies = list(values)
    if how == "less":
        del copies[at]
    elif how == "twice":
        copies.append(copies[at])
    elif how == "order":
        rng.shuffle(copies)
    elif field.message_type is not None:
        others = [v for m, f, _ in found if f.message_type is field.message_type for v in _several(m, f)]
        copies[at] = type(copies[at]).FromString(rng.choice(others).SerializeToString())
    elif field.enum_type is None:
        copies[at] = _other(field, copies[at], names, rng)
    del values[:]
    values.extend(copies)
    return f"{where}[{at}]: {how}"


def _several(message: Message, field: Any) -> list[Any]:
    value = getattr(message, field.name)
    return list(value) if field.is_repeated else [value]


def case_of(name: str, seed: int) -> Case:
    """The model with one change or more; with none for seed 0."""
    rng = random.Random(zlib.crc32(f"{name} {seed}".encode()))
    data, told = model_of(name), []
    if seed and rng.random() < 0.15:
        changed = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 5))):
            at = rng.randrange(len(changed))
            changed[at] ^= rng.choice(FLIPPED)
            told.append(f"byte {at}")
        return Case(bytes(changed), feeds_of(name), "; ".join(told), 10.0)
    model = onnx.ModelProto.FromString(data)
    told += [change(model, rng) for _ in range(rng.choice((1, 1, 1, 2, 3)) if seed else 0)]
    return Case(model.SerializeToString(), feeds_of(name), "; ".join(told), 10.0)


if __name__ == "__main__":
    answer_cases(case_of)
