"""How ONNX's operators are written in NNAPI's operations: one module for each family, `LOWERINGS` in each by operator.

A lowering is called with the writer and a node, and says which operand each output is (`Writer.set`); it raises
`Untranslatable` with the reason where NNAPI has nothing for the node, or computes it otherwise.
"""
