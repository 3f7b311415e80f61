"""Softmax and normalisations of rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from intarsia.graph.model import Node
from intarsia.plan.array_address import address_of
from intarsia.providers.cpu.first_tier import kernel_specs
from intarsia.providers.cpu.first_tier.kernel_calls import Fast, KernelCalls, is_float32, new


def softmax(node: Node, constants: Mapping[str, np.ndarray], calls: KernelCalls) -> Fast | None:
    """Along the last axis."""
    axis = int(node.attributes.get("axis", -1))
    if node.version < 13:  # all axes from one on, as one
        return None
    name = f"softmax {node.op_type == 'LogSoftmax'}"

    def run(operands: Sequence[Any]) -> list[np.ndarray] | None:
        x = operands[0]
        if not is_float32(x) or not x.ndim or axis not in (-1, x.ndim - 1):
            return None
        x = np.ascontiguousarray(x)
        y = new(x.shape)
        calls(name, [address_of(x), address_of(y), x.size // x.shape[-1], x.shape[-1]])
        return [y]

    return run


def normalisation(node: Node, constants: Mapping[str, np.ndarray], calls: KernelCalls) -> Fast | None:
    """LayerNormalization and RMSNormalization of the last axis."""
    layer = node.op_type == "LayerNormalization"
    kernel = kernel_specs.normalisation_sizes("layer_norm" if layer else "rms_norm")
    epsilon = np.array([node.attributes.get("epsilon", 1e-5)], np.float32)
    axis = int(node.attributes.get("axis", -1))
    if len([n for n in node.outputs if n]) != 1 or node.attributes.get("stash_type", 1) != 1:
        return None

    def run(operands: Sequence[Any]) -> list[np.ndarray] | None:
        x, scale, *more = operands
        bias = more[0] if layer and more and more[0] is not None else None
        if not is_float32(x, scale) or axis not in (-1, x.ndim - 1) or scale.shape != x.shape[-1:]:
            return None
        if bias is None:
            bias = np.zeros(scale.shape, np.float32)
        if not is_float32(bias) or bias.shape != scale.shape:
            return None
        x, scale, bias = (np.ascontiguousarray(a) for a in (x, scale, bias))
        y = new(x.shape)
        n = x.shape[-1]
        places = {0: address_of(x), 1: address_of(scale), 2: address_of(bias), 3: address_of(epsilon)}
        calls(kernel.name, kernel.arguments(places, address_of(y), {"m": math.prod(x.shape[:-1]), "n": n}))
        return [y]

    return run


def instance_normalisation(node: Node, constants: Mapping[str, np.ndarray], calls: KernelCalls) -> Fast | None:
    """InstanceNormalization: each channel of each image is a row."""
    kernel = kernel_specs.normalisation_sizes("layer_norm")
    epsilon = np.array([node.attributes.get("epsilon", 1e-5)], np.float32)

    def run(operands: Sequence[Any]) -> list[np.ndarray] | None:
        x, scale, bias = operands
        if not is_float32(x, scale, bias) or x.ndim < 3 or not x.shape[1:2] == scale.shape == bias.shape:
            return None
        x = np.ascontiguousarray(x)
        y = new(x.shape)
        pixels = math.prod(x.shape[2:])
        one, zero = np.ones(pixels, np.float32), np.zeros(pixels, np.float32)
        places = {0: address_of(x), 1: address_of(one), 2: address_of(zero), 3: address_of(epsilon)}
        calls(kernel.name, kernel.arguments(places, address_of(y), {"m": math.prod(x.shape[:2]), "n": pixels}))
        channels = (-1, *[1] * (x.ndim - 2))
        y *= scale.reshape(channels)
        y += bias.reshape(channels)
        return [y]

    return run
