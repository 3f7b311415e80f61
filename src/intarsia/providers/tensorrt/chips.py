"""Compute capabilities: what engines are built for ahead of time, and what the chip that is there is called."""

from __future__ import annotations

CHIPS = {"SM75": 75, "SM80": 80, "SM86": 86, "SM89": 89, "SM120": 120, "SM121": 121}
"""Names of TensorRT-RTX's `ComputeCapability` -> 10 times the number. H100 and H200 (90) are not among them."""
