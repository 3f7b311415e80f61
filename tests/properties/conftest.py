"""Properties of operators: what is drawn for each family, and what its results are compared with.

Every property gets 100 examples that are always the same, 200 with `--nightly` or where it is named; `--property-examples N`
draws N new ones in every run. The compiled result is compared with the reference interpreter and with the formula of an
independent source (float64 NumPy where the table says nothing else). `test_strides.py` gives one operator of each family views
with steps, transposed, reversed and repeated; `test_graphs.py` joins families; `test_bad_input.py` and
`test_malformed_nodes.py` are about errors, `tests/ops/test_every_type.py` about types.

| family                               | file            | empty | scalar | broadcast | negative axes | omitted | strides |
|--------------------------------------|-----------------|-------|--------|-----------|---------------|---------|---------|
| unary, binary, variadic              | elementwise     | x     | x      | x         | none          | Clip    | x       |
| comparison, logic, bits, casts       | elementwise     | x     | x      | x         | none          | none    | Where   |
| reductions, arg reductions           | reductions      | x     | x      | none      | x             | axes    | x       |
| cumulative                           | reductions      | x     | none   | none      | x             | none    | x       |
| softmax                              | reductions      | x     | none   | none      | x             | none    | x       |
| norms                                | reductions      | x     | none   | weights   | x             | bias    | x       |
| skipped norms, activations           | contributed     | x     | x      | skip      | none          | bias    |         |
| matrix products, Einsum              | products        | x     | x      | batches   | none          | C       | x       |
| weights of few bits                  | contributed     | rows  | none   | none      | none          | x       |         |
| convolutions, transposed ones        | products, torch | batch | none   | none      | none          | bias    | x       |
| deformed convolutions, regions, NMS  | regions         | x     | none   | none      | none          | x       |         |
| pools, unpooling                     | windows, torch  | batch | none   | none      | none          | indices | x       |
| Resize, GridSample, AffineGrid       | windows, torch  | batch | none   | grid      | none          | roi     | x       |
| attention of ONNX                    | products, torch | keys  | none   | mask      | none          | x       | x       |
| MHA, GQA, rotary embedding           | contributed     | x     | none   | bias      | none          | x       | x       |
| recurrent                            | recurrent       | x     | none   | none      | none          | x       | x       |
| gather, scatter                      | indexing        | x     | x      | none      | x             | none    | Gather  |
| TopK, Unique, NonZero, Compress      | indexing        | x     | x      | none      | x             | axis    | TopK    |
| slices, pads, joins, repeats, views  | movement        | x     | x      | Expand    | x             | x       | x       |
| quantisation, in blocks too          | quantised       | x     | x      | axis      | x             | point   |         |
| quantised elements and products      | contributed     | x     | x      | x         | x             | none    |         |
| Fourier transforms, windows, mel     | signal          | batch | x      | none      | x             | x       | DFT     |
| random                               | random          | x     | x      | none      | none          | none    |         |
| losses, Det, Inverse, TensorScatter  | losses          | x     | x      | none      | x             | x       |         |
| classical models                     | classical       | rows  | x      | none      | none          | x       |         |
| sequences, optionals, strings        | sequences       | x     | x      | x         | x             | x       |         |

An x: drawn in every position where ONNX allows it; a word: there alone; none: the family has no such operands or attributes.
"""
