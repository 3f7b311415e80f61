"""Graphs from ONNX's text form, and providers that only say what they support."""

from partition_graphs import make_graph as make_graph
from partition_graphs import null as null
