"""What a model takes and gives: `NodeArg` and `ModelMetadata`."""

from __future__ import annotations

from dataclasses import field

from intarsia.graph.dims import Dim, written_name
from intarsia.graph.model import Metadata, OptionalType, TensorType, Value
from intarsia.lazy_dataclass import dataclass


@dataclass
class NodeArg:
    """Name, type (such as 'tensor(float)') and shape of an input or output.

    A dimension is an int, a symbol's name, or None where nothing is known. A shape of unknown rank is [], and so is that of
    a sequence or map; an optional tensor has that of the tensor.
    """

    name: str
    type: str
    shape: list[int | str | None]

    @classmethod
    def of(cls, value: Value) -> NodeArg:
        """That of a value of a graph."""
        kind = value.type
        held = kind.element if isinstance(kind, OptionalType) else kind
        shape = list(map(_dim, held.shape)) if isinstance(held, TensorType) and held.shape is not None else []
        return cls(value.name, kind.onnx_name if kind is not None else "", shape)

    def __str__(self) -> str:
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape})"


def _dim(dim: Dim) -> int | str | None:
    if isinstance(dim, int):
        return dim
    if dim.symbols == {str(dim)}:
        return written_name(str(dim))
    return None if any("#" in name for name in dim.symbols) else str(dim)


@dataclass
class ModelMetadata:
    """What the model says of itself."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, metadata: Metadata, graph_name: str) -> ModelMetadata:
        """That of a loaded model."""
        return cls(
            metadata.producer_name, graph_name, metadata.domain, metadata.doc, metadata.graph_doc, metadata.model_version,
            dict(metadata.properties),
        )  # fmt: skip
