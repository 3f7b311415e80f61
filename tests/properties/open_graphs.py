"""Small graphs that passes fuse and templates take, whose sizes only a run knows: every size has a name of its own.

Run as a program it reads a line `NAME 0` for each graph, feeds it with operands that do not fit each other, and writes a line
of JSON.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx.parser
from mutations import PROVIDERS
from onnx import helper, numpy_helper
from other_sizes import answer, session_on, tried


@dataclass(frozen=True)
class Graph:
    """Inputs and nodes in ONNX's text form (the result is `y0`), shapes of operands that fit, and constants."""

    inputs: str
    nodes: str
    shapes: dict[str, tuple[int, ...]]
    constants: dict[str, np.ndarray | np.generic] = field(default_factory=dict)

    def model(self) -> onnx.ModelProto:
        opset = 17 if "axes=[" in self.nodes else 20 if "Gelu" in self.nodes else 21
        text = f'<ir_version: 10, opset_import: ["": {opset}]> g ({self.inputs}) => (y0) {{ {self.nodes} }}'
        model = onnx.parser.parse_model(text)
        model.graph.initializer.extend(numpy_helper.from_array(np.asarray(x), name) for name, x in self.constants.items())
        return model

    def feeds(self) -> dict[str, np.ndarray]:
        rng, found = np.random.default_rng(0), {}
        for value in self.model().graph.input:
            dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            shape = self.shapes[value.name]
            numbers = rng.integers(0, 3, shape) if dtype.kind in "iub" else np.abs(rng.standard_normal(shape))
            found[value.name] = np.asarray(numbers).astype(dtype)
        return found


GRAPHS = {
    "attention": Graph(
        """float[b,h,s,d] q, float[b2,h2,t,d2] k, float[b3,h3,t2,e] v, float[x,y,z,w] m""",
        """kt = Transpose<perm=[0,1,3,2]>(k) a = MatMul(q, kt) s = Mul(a, c) n = Add(s, m) p =
            Softmax<axis=-1>(n) y0 = MatMul(p, v)""",
        {"q": (2, 3, 4, 8), "k": (2, 3, 5, 8), "v": (2, 3, 5, 8), "m": (2, 1, 4, 5)},
        {"c": np.float32(0.3)},
    ),
    "attention_no_mask": Graph(
        """float[b,h,s,d] q, float[b2,h2,t,d2] k, float[b3,h3,t2,e] v""",
        """kt = Transpose<perm=[0,1,3,2]>(k) a = MatMul(q, kt) s = Mul(a, c) p = Softmax<axis=-1>(s) y0 =
            MatMul(p, v)""",
        {"q": (2, 3, 4, 8), "k": (2, 3, 5, 8), "v": (2, 3, 5, 8)},
        {"c": np.float32(0.3)},
    ),
    "cache": Graph(
        """float[b,h,s,d] q, float[b2,h2,t,d2] k, float[b3,h3,t2,e] v, float[b4,h4,p,d4] pk, float[b5,h5,p2,d5] pv""",
        """ck = Concat<axis=2>(pk, k) cv = Concat<axis=2>(pv, v) kt = Transpose<perm=[0,1,3,2]>(ck) a =
            MatMul(q, kt) s = Mul(a, c) p = Softmax<axis=-1>(s) y0 = MatMul(p, cv)""",
        {"q": (2, 3, 1, 8), "k": (2, 3, 1, 8), "v": (2, 3, 1, 8), "pk": (2, 3, 4, 8), "pv": (2, 3, 4, 8)},
        {"c": np.float32(0.3)},
    ),
    "layer_norm": Graph(
        """float[b,s,h] x, float[h2] w, float[h3] bias""",
        """m = ReduceMean<axes=[-1]>(x) d = Sub(x, m) q = Pow(d, two) v = ReduceMean<axes=[-1]>(q) e = Add(v,
            eps) r = Sqrt(e) n = Div(d, r) sc = Mul(n, w) y0 = Add(sc, bias)""",
        {"x": (2, 3, 8), "w": (8,), "bias": (8,)},
        {"two": np.float32(2), "eps": np.float32(1e-5)},
    ),
    "skip_norm": Graph(
        """float[b,s,h] x, float[b2,s2,h4] z, float[h2] w, float[h3] bias""",
        """a = Add(x, z) y0 = LayerNormalization(a, w, bias)""",
        {"x": (2, 3, 8), "z": (2, 3, 8), "w": (8,), "bias": (8,)},
    ),
    "rms": Graph(
        """float[b,s,h] x, float[h2] w""",
        """q = Mul(x, x) v = ReduceMean<axes=[-1]>(q) e = Add(v, eps) r = Sqrt(e) n = Div(x, r) y0 = Mul(n, w)""",
        {"x": (2, 3, 8), "w": (8,)},
        {"eps": np.float32(1e-5)},
    ),
    "mlp": Graph(
        """float[b,k] x, float[k2,n] w, float[n2] bias, float[n3,m] w2""",
        """a = MatMul(x, w) c = Add(a, bias) g = Gelu(c) y0 = MatMul(g, w2)""",
        {"x": (3, 8), "w": (8, 6), "bias": (6,), "w2": (6, 5)},
    ),
    "gemm_chain": Graph(
        """float[b,k] x, float[n,k2] w, float[n2] bias, float[b2,n4] z""",
        """a = Gemm<transB=1>(x, w, bias) r = Relu(a) y0 = Add(r, z)""",
        {"x": (3, 8), "w": (6, 8), "bias": (6,), "z": (3, 6)},
    ),
    "conv_residual": Graph(
        """float[b,c,h,w] x, float[f,c2,i,j] k, float[f2] bias, float[b2,f3,h2,w2] z""",
        """a = Conv<pads=[1,1,1,1]>(x, k, bias) r = Add(a, z) y0 = Relu(r)""",
        {"x": (2, 4, 5, 5), "k": (6, 4, 3, 3), "bias": (6,), "z": (2, 6, 5, 5)},
    ),
    "conv_norm": Graph(
        """float[b,c,h,w] x, float[f,c2,i,j] k, float[f2] s, float[f3] bias, float[f4] mean, float[f5] var""",
        """a = Conv(x, k) r = BatchNormalization(a, s, bias, mean, var) y0 = Relu(r)""",
        {"x": (2, 4, 5, 5), "k": (6, 4, 3, 3), "s": (6,), "bias": (6,), "mean": (6,), "var": (6,)},
    ),
    "depthwise": Graph(
        """float[b,8,h,w] x, float[f2] bias""",
        """a = Conv<group=8>(x, k, bias) y0 = Clip(a, zero, six)""",
        {"x": (2, 8, 5, 5), "bias": (8,)},
        {"k": np.ones((8, 1, 3, 3), np.float32), "zero": np.float32(0), "six": np.float32(6)},
    ),
    "conv_constant": Graph(
        """float[b,c,h,w] x, float[f2] bias, float[b2,f3,h2,w2] z""",
        """a = Conv<pads=[1,1,1,1]>(x, k, bias) s = Sigmoid(a) t = Mul(a, s) y0 = Add(t, z)""",
        {"x": (2, 4, 5, 5), "bias": (6,), "z": (2, 6, 5, 5)},
        {"k": np.ones((6, 4, 3, 3), np.float32)},
    ),
    "qdq": Graph(
        """uint8[b,k] x, int8[k2,n] w, float[s1] xs, uint8[z1] xz, float[s2] ws, int8[z2] wz""",
        """a = DequantizeLinear<axis=1>(x, xs, xz) c = DequantizeLinear<axis=1>(w, ws, wz) m = MatMul(a, c) y0
            = QuantizeLinear(m, ys, yz)""",
        {"x": (3, 8), "w": (8, 6), "xs": (8,), "xz": (8,), "ws": (6,), "wz": (6,)},
        {"ys": np.float32(0.5), "yz": np.uint8(9)},
    ),
    "qdq_one": Graph(
        """uint8[b,k] x, int8[k2,n] w, float[s2] ws, int8[z2] wz""",
        """a = DequantizeLinear(x, ys, yz) c = DequantizeLinear<axis=1>(w, ws, wz) m = MatMul(a, c) y0 =
            QuantizeLinear(m, ys, yz)""",
        {"x": (3, 8), "w": (8, 6), "ws": (6,), "wz": (6,)},
        {"ys": np.float32(0.5), "yz": np.uint8(9)},
    ),
    "qdq_conv": Graph(
        """uint8[b,c,h,w] x, float[s2] ws, int8[z2] wz""",
        """a = DequantizeLinear(x, ys, yz) c = DequantizeLinear<axis=0>(k, ws, wz) m = Conv(a, c) y0 =
            QuantizeLinear(m, ys, yz)""",
        {"x": (2, 4, 5, 5), "ws": (6,), "wz": (6,)},
        {"ys": np.float32(0.5), "yz": np.uint8(9), "k": np.ones((6, 4, 3, 3), np.int8)},
    ),
    "half": Graph(
        """float16[b,k] x, float16[k2,n] w, float16[n2] bias""",
        """a = MatMul(x, w) y0 = Add(a, bias)""",
        {"x": (3, 8), "w": (8, 6), "bias": (6,)},
    ),
    "half_conv": Graph(
        """float16[b,c,h,w] x, float16[f,c2,i,j] k, float16[f2] bias""",
        """y0 = Conv<pads=[1,1,1,1]>(x, k, bias)""",
        {"x": (2, 4, 5, 5), "k": (6, 4, 3, 3), "bias": (6,)},
    ),
    "batched": Graph(
        """float[a,b,k] x, float[c,k2,n] w""",
        """t = Transpose<perm=[0,2,1]>(w) u = Transpose<perm=[0,2,1]>(t) m = MatMul(x, u) y0 = Softmax(m)""",
        {"x": (2, 3, 8), "w": (2, 8, 6)},
    ),
    "embedding": Graph(
        """int64[b,s] i, float[v,h] e, float[p,h2] pe, float[h3] w""",
        """g = Gather(e, i) z = Add(g, pe) y0 = Mul(z, w)""",
        {"i": (2, 3), "e": (9, 8), "pe": (3, 8), "w": (8,)},
    ),
    "where": Graph(
        """bool[a,b] c, float[d,e] x, float[f] z""",
        """w = Where(c, x, z) s = ReduceSum<keepdims=0>(w, ax) y0 = Mul(s, s)""",
        {"c": (3, 4), "x": (3, 4), "z": (4,)},
        {"ax": np.array([1])},
    ),
    "scatter": Graph(
        """float[n,h] x, int64[k,1] i, float[k2,h2] u""",
        """s = ScatterND(x, i, u) y0 = Exp(s)""",
        {"x": (5, 4), "i": (3, 1), "u": (3, 4)},
    ),
    "lstm": Graph(
        """float[s,b,i] x, float[1,g,i2] w, float[1,g2,h] r, float[1,gg] bias, float[1,b2,h2] h0, float[1,b3,h3] c0""",
        """t, u, v = LSTM<hidden_size=4>(x, w, r, bias, , h0, c0) y0 = Squeeze(t, ax)""",
        {"x": (3, 2, 5), "w": (1, 16, 5), "r": (1, 16, 4), "bias": (1, 32), "h0": (1, 2, 4), "c0": (1, 2, 4)},
        {"ax": np.array([1])},
    ),
    "views": Graph(
        """float[a,b] x, float[c,d] z""",
        """r = Reshape(x, sh) t = Transpose<perm=[1,0]>(z) f = Flatten(t) y0 = Add(r, f)""",
        {"x": (4, 6), "z": (8, 3)},
        {"sh": np.array([-1, 8])},
    ),
    "split": Graph(
        """float[a,b] x, float[c] z""",
        """p, q, r = Split<axis=1, num_outputs=3>(x) m = Mul(p, q) s = Add(m, r) y0 = Add(s, z)""",
        {"x": (4, 6), "z": (2,)},
    ),
    "loop": Graph(
        """float[n,h] x, float[h2,h3] w, int64 trips""",
        """y0 = Loop<body = body (int64 i, bool cond, float[n3,h4] c) => (bool co, float[n4,h5] d) { co =
            Identity(cond) m = MatMul(c, w) d = Add(m, x) }>(trips, , x)""",
        {"x": (3, 4), "w": (4, 4), "trips": ()},
    ),
    "scan": Graph(
        """float[h] s, float[n,h2] x, float[n2,h3] z""",
        """f, y0 = Scan<num_scan_inputs=2, body = body (float[h4] c, float[h5] a, float[h6] b) => (float[h7] d,
            float[h8] e) { t = Add(c, a) d = Mul(t, b) e = Add(d, a) }>(s, x, z)""",
        {"s": (4,), "x": (3, 4), "z": (3, 4)},
    ),
    "if": Graph(
        """bool c, float[n,h] x, float[h2] z, float[n2,h3] w""",
        """y0 = If<then_branch = t () => (float[p,q] a) { a = Add(x, z) }, else_branch = e () => (float[p2,q2]
            b) { b = Mul(x, w) }>(c)""",
        {"c": (), "x": (3, 4), "z": (4,), "w": (3, 4)},
    ),
    "softmax_mask": Graph(
        """float[b,s,t] x, float[b2,1,t2] m""",
        """a = Add(x, m) p = Softmax(a) y0 = ReduceMax<keepdims=0>(p, ax)""",
        {"x": (2, 3, 4), "m": (2, 1, 4)},
        {"ax": np.array([2])},
    ),
    "resize_pad": Graph(
        """float[b,c,h,w] x, float[b2,c2,h2,w2] z""",
        """r = Resize<mode="nearest">(x, , sc) p = Pad(r, pads) y0 = Concat<axis=1>(p, z)""",
        {"x": (1, 2, 3, 3), "z": (1, 2, 8, 8)},
        {"sc": np.float32([1, 1, 2, 2]), "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1])},
    ),
    "pool": Graph(
        """float[b,c,h,w] x, float[b2,c2,h2,w2] z""",
        """r = MaxPool<kernel_shape=[2,2],strides=[2,2]>(x) p = AveragePool<kernel_shape=[2,2]>(r) y0 = Add(p,
            z)""",
        {"x": (1, 2, 8, 8), "z": (1, 2, 3, 3)},
    ),
    "group_norm": Graph(
        """float[b,c,h,w] x, float[g] s, float[g2] t, float[c2] u""",
        """i = InstanceNormalization(x, s, t) z = Unsqueeze(u, ax) y0 = Mul(i, z)""",
        {"x": (2, 4, 3, 3), "s": (4,), "t": (4,), "u": (4,)},
        {"ax": np.array([1, 2])},
    ),
}


def _graph(name: str, _: int) -> tuple[str, list[str], bool]:
    graph = GRAPHS[name]
    model = graph.model().SerializeToString()
    return name, list(tried([session_on(provider, model) for provider in PROVIDERS], graph.feeds(), False)), True


if __name__ == "__main__":
    answer(_graph)
