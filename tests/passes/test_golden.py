"""The whole stage on models that exporters write, as text."""

import math

import numpy as np
from pass_models import build, optimized

from intarsia.graph.load import load
from intarsia.passes import optimize

B, HEADS, SIZE, WIDTH = "b", 2, 4, 8


def _block():
    """A transformer block as torch writes it, with LayerNormalization and Gelu in pieces."""
    rng = np.random.default_rng(11)
    nodes, constants = [], {}
    for n in "qkv":
        constants[f"w{n}"] = rng.normal(size=(WIDTH, WIDTH)).astype(np.float32)
        constants[f"b{n}"] = rng.normal(size=WIDTH).astype(np.float32)
        nodes += [("MatMul", f"x w{n}", f"{n}0"), ("Add", f"b{n} {n}0", f"{n}1"), ("Reshape", f"{n}1 target", f"{n}2")]
    nodes += [("Transpose", "q2", "q", {"perm": [0, 2, 1, 3]}), ("Transpose", "k2", "kt", {"perm": [0, 2, 3, 1]})]
    nodes += [("Transpose", "v2", "v", {"perm": [0, 2, 1, 3]})]
    shape = [
        ("Shape", "x", "s"),
        ("Gather", "s i0", "d0"),
        ("Gather", "s i1", "d1"),
        ("Unsqueeze", "d0 a0", "e0"),
        ("Unsqueeze", "d1 a0", "e1"),
    ]
    shape += [("Concat", "e0 e1 heads size", "target", {"axis": 0}), ("Concat", "e0 e1 width", "joined", {"axis": 0})]
    mask = [("Cast", "mask", "m0", {"to": 1}), ("Unsqueeze", "m0 a12", "m1"), ("Sub", "one m1", "m2"), ("Mul", "m2 low", "m3")]
    attention = [
        ("MatMul", "q kt", "t0"),
        ("Div", "t0 root", "t1"),
        ("Add", "t1 m3", "t2"),
        ("Softmax", "t2", "p", {"axis": 3}),
        ("Dropout", "p", "p1"),
    ]
    attention += [
        ("MatMul", "p1 v", "o"),
        ("Transpose", "o", "o1", {"perm": [0, 2, 1, 3]}),
        ("Reshape", "o1 joined", "o2"),
        ("Add", "x o2", "r"),
    ]
    norm = [
        ("ReduceMean", "r", "u", {"axes": [-1]}),
        ("Sub", "r u", "c"),
        ("Pow", "c two", "c2"),
        ("ReduceMean", "c2", "var", {"axes": [-1]}),
    ]
    norm += [
        ("Add", "var eps", "var1"),
        ("Sqrt", "var1", "std"),
        ("Div", "c std", "n"),
        ("Mul", "n gamma", "n1"),
        ("Add", "n1 beta", "n2"),
    ]
    gelu = [
        ("Div", "n2 root2", "g0"),
        ("Erf", "g0", "g1"),
        ("Add", "g1 one", "g2"),
        ("Mul", "n2 g2", "g3"),
        ("Mul", "g3 half", "y"),
    ]
    constants |= {
        "i0": np.array(0),
        "i1": np.array(1),
        "a0": np.array([0]),
        "a12": np.array([1, 2]),
        "heads": np.array([HEADS]),
    }
    constants |= {
        "size": np.array([SIZE]),
        "width": np.array([WIDTH]),
        "one": 1.0,
        "low": -1e4,
        "root": 2.0,
        "two": 2.0,
        "eps": 1e-5,
    }
    constants |= {
        "gamma": np.full(WIDTH, 1.5, np.float32),
        "beta": np.full(WIDTH, 0.5, np.float32),
        "root2": math.sqrt(2),
        "half": 0.5,
    }
    every = [*shape, *nodes, *mask, *attention, *norm, *gelu]
    return build(every, {"x": [B, "s", WIDTH], "mask": (np.int64, [B, "s"])}, ["y"], constants, opset=14)


BLOCK = """\
%q0 = MatMul(%x, %wq)  # MatMul_7
%q1 = Add(%bq, %q0)  # Add_8
%k0 = MatMul(%x, %wk)  # MatMul_10
%k1 = Add(%bk, %k0)  # Add_11
%v0 = MatMul(%x, %wv)  # MatMul_13
%v1 = Add(%bv, %v0)  # Add_14
%m0 = Cast(%mask, to=1)  # Cast_19
%m1 = Unsqueeze(%m0, %a12)  # Unsqueeze_20
%m2 = Sub(%one, %m1)  # Sub_21
%m3 = Mul(%m2, %low)  # Mul_22
%o2 = Attention(%q1, %k1, %v1, %m3, scale=0.5, q_num_heads=2, kv_num_heads=2)  # Attention/o2
%r = Add(%x, %o2)  # Add_31
%n2 = LayerNormalization(%r, %gamma, %beta, axis=-1, epsilon=9.99999975e-06, stash_type=1)  # LayerNormalization/n2
%y = Gelu(%n2, approximate='none')  # Gelu/y"""

LOG = """\
46 nodes -> 14 nodes
  constant_reshape_target     4  Reshape_9, Reshape_12, Reshape_15, ...
  remove_dropout              1  Dropout_27
  fuse_layer_norm             1  Div_38
  norm_takes_scale            1  Mul_39
  norm_takes_bias             1  Add_40
  fuse_gelu                   1  Mul_45
  fuse_attention              1  MatMul_28
  merge_transposes            1  Transpose/o.transpose
  attention_joins_heads       1  Reshape/o2"""


def test_transformer_block():
    result = optimized(_block(), sizes={"b": 2, "s": 3}, atol=1e-4)
    assert "\n".join(map(str, result.graph.nodes)) == BLOCK
    assert str(result) == LOG
    attention = next(n for n in result.graph.nodes if n.op_type == "Attention")
    assert {"MatMul_23", "Softmax_26", "MatMul_28", "Transpose_29"} <= set(attention.origin)


def test_every_number_of_rewrites_gives_the_same_result():
    """What `limit` is for: each prefix of the rewrites is a correct graph."""
    model = _block()
    total = sum(entry.times for entry in optimize(load(model)).log)
    for limit in range(0, total + 1, 3):
        optimized(model, sizes={"b": 2, "s": 3}, atol=1e-4, limit=limit)
