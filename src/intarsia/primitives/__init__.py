"""The tensor primitives that operators are written in: their language, interpreter, derivatives."""
