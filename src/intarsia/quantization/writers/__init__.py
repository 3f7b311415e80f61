"""Quantised models of descriptions: QuantizeLinear pairs, integer and QLinear operators, blocks of weights, 16-bit floats."""
