"""What is known of a model before it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from intarsia.cli.inputs.guessed_sizes import Guesses
from intarsia.cli.inputs.input_info import InputInfo
from intarsia.cli.inputs.pictures import size_in_metadata
from intarsia.graph.load import load
from intarsia.lazy_dataclass import dataclass
from intarsia.model.signature import NodeArg

if TYPE_CHECKING:
    import intarsia


@dataclass(frozen=True)
class Signature:
    """What is known of a model before it runs.

    Attributes:
        inputs, outputs: its `NodeArg`s.
        metadata: its metadata, which may say how its pictures are prepared.
    """

    inputs: Sequence[InputInfo]
    outputs: Sequence[InputInfo] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)

    def guesses(self) -> Guesses:
        """What helps guessing sizes: outputs of lists or maps are those of detectors and segmentation."""
        return Guesses(any(len(info.shape) > 2 for info in self.outputs), size_in_metadata(self.metadata))

    @classmethod
    def of_session(cls, session: intarsia.InferenceSession) -> Signature:
        """A session's."""
        return cls(session.get_inputs(), session.get_outputs(), session.get_modelmeta().custom_metadata_map)

    @classmethod
    def of_file(cls, model: Path) -> Signature:
        """That of a model in a file.

        Raises:
            IntarsiaError: the file holds no model.
        """
        graph = load(model)
        inputs, outputs = ([NodeArg.of(value) for value in values] for values in (graph.inputs, graph.outputs))
        return cls(inputs, outputs, graph.metadata.properties)
