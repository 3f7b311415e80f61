"""The page of the primitives that definitions of operators are written in, which Sphinx fills from their docstrings."""

from __future__ import annotations

from collections.abc import Iterable

# Subject -> names of intarsia.custom_ops.primitives; those that only the implementation needs are left out.
SUBJECTS: dict[str, str] = {
    "One element at a time": (
        "select cast bitcast maximum minimum power equal not_equal absolute neg exp log sqrt erf tanh sigmoid unary binary"
    ),
    "Products, reductions, order": "dot reduce reduce_sum reduce_mean reduce_max arg_reduce scan sort",
    "Shapes": "reshape transpose broadcast expand_dims concat pad strided_slice windows",
    "Places": "take index scatter wrap_indices",
    "New tensors": "scalar full iota constant size",
    "Sizes": "broadcast_shapes floordiv product",
    "Requirements": "require_equal require_broadcast require_least require_multiple",
}


def text() -> str:
    from intarsia.custom_ops import primitives as k

    def listed(names: Iterable[str]) -> str:
        return ", ".join(f"`{name}`" for name in sorted(names))

    lines = [
        "# Primitives", "",
        (
            "`from intarsia.custom_ops import primitives as k`: the tensor operations in which "
            "[operators of your own](../custom-operators.md) are written. An operand is a tensor or a Python number. "
            "Tensors have `x.dtype`, `x.shape` and `x.rank`, and take the operators `+ - * / < <= > >= & | ^ ~`."
        ), "",
        f"`k.unary(NAME, x)` computes one of {listed(k.UNARY)}.", "",
        f"`k.binary(NAME, a, b)` computes one of {listed(k.BINARY | k.COMPARISONS)}.", "",
        f"`k.reduce(x, NAME, axes)` combines by one of {listed(k.REDUCTIONS)}.", "",
    ]  # fmt: skip
    for subject, names in SUBJECTS.items():
        lines += [f"## {subject}", "", "```{eval-rst}", ".. currentmodule:: intarsia.primitives.lang", ""]
        lines += [line for name in names.split() for line in (f".. autofunction:: {getattr(k, name).__name__}", "")]
        lines += ["```", ""]
    return "\n".join(lines)
