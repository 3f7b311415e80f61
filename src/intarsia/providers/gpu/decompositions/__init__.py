"""Operators that other providers run by templates or on the host, written out for devices in primitives.

`rules` says by which nodes of the domain `intarsia.device` each is replaced; the modules beside it define these as `ops`
defines ONNX's operators. A result whose size only the data know is computed in two nodes: the first makes room for as many
as there may be and counts, the second takes the count as a number, so that the plan is cut between them (`stages`).
"""

from intarsia.providers.gpu.decompositions.registry import DOMAIN, device_registry
from intarsia.providers.gpu.decompositions.rules import rewritten

__all__ = ["DOMAIN", "device_registry", "rewritten"]
