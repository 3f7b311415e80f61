"""Which single nodes `node_sweep` tries: operators, shapes of their inputs, and the values that each attribute is given.

A row stands for every version of its operators that has its attributes and takes its inputs (ONNX's schemas say so), for every
combination of its attributes' values (None: the attribute is left out), and for each of its lists of inputs. An input is

    float[2,3]      a tensor of this element type and shape; "T[2,3]": of every type in `TYPES` that the schema allows
    int64{0,-1}     these elements, along one axis; "int64 2": a scalar
    -               omitted
"""

from __future__ import annotations

from collections.abc import Iterator

from intarsia.testing.node_row import Row
from intarsia.testing.node_rows.elementwise import ELEMENTWISE
from intarsia.testing.node_rows.movement import MOVEMENT
from intarsia.testing.node_rows.products import PRODUCTS, RECURRENT
from intarsia.testing.node_rows.reductions import REDUCTIONS
from intarsia.testing.node_rows.signal import MICROSOFT, SIGNAL
from intarsia.testing.node_rows.windows import WINDOWS

ROWS: tuple[Row, ...] = (*ELEMENTWISE, *REDUCTIONS, *WINDOWS, *PRODUCTS, *RECURRENT, *MOVEMENT, *SIGNAL, *MICROSOFT)


def operators() -> Iterator[tuple[str, str]]:
    """(domain, name) of every operator that has a row."""
    for row in ROWS:
        for name in row.operators.split():
            yield row.domain, name
