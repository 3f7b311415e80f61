"""MIL programs as packages on disk (.mlpackage), and folders as bytes.

The passes are those of `PASSES`. coremltools' own pipelines, also the one that it always runs for ML programs, rewrite
divisions by constants as products (floor(41 / 41) = 0) and merge casts that round, so that they are not used.
"""

from __future__ import annotations

import io
import itertools
import json
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from intarsia.graph.dtypes import DType
from intarsia.providers.coreml import converter
from intarsia.providers.coreml.translator import Port, TranslatedPart

PASSES = (
    "common::dead_code_elimination",
    "common::const_deduplication",
    "common::topological_reorder",
    "common::dead_code_elimination",
    "mil_backend::sanitize_name_strings",
    "common::dedup_op_and_var_names",
    "nn_backend::handle_unused_inputs",
)
"""Of coremltools, in order. None changes a number."""
_PORTS = "intarsia.ports"  # the package's own note of what it takes and gives


def write_package(part: TranslatedPart, path: Path) -> None:
    """Write a package; a folder that is there is replaced.

    Raises:
        ValueError, RuntimeError: coremltools cannot write it.
    """
    ct = converter.tools()
    from coremltools.converters.mil.backend.mil.load import load as to_proto
    from coremltools.converters.mil.mil.passes.pass_registry import PASS_REGISTRY

    with converter.quiet(), tempfile.TemporaryDirectory(prefix="intarsia-coreml-") as folder:
        for name in PASSES:
            PASS_REGISTRY[name](part.program)
        weights = Path(folder) / "weights"
        weights.mkdir()
        proto = to_proto(
            part.program, weights_dir=str(weights), specification_version=_specification(ct, part),
            convert_to="mlprogram", convert_from="milinternal",
        )  # fmt: skip
        for feature, port in ((f, p) for f in proto.description.input for p in part.inputs if p.feature == f.name):
            feature.shortDescription = port.name
        for feature, port in ((f, p) for f in proto.description.state for p in part.states if p.feature == f.name):
            feature.shortDescription = port.name
        _set_sizes(proto, part.inputs)
        for feature, port in ((f, p) for f in proto.description.output for p in part.outputs if p.feature == f.name):
            feature.shortDescription = port.name
        proto.description.metadata.userDefined[_PORTS] = note_of(part)
        proto.description.metadata.userDefined["com.github.apple.coremltools.version"] = ct.__version__
        whole = Path(folder) / "whole.mlpackage"
        ct.models.utils._create_mlpackage(proto, str(weights), str(whole))
        if path.exists():
            shutil.rmtree(path)
        shutil.move(str(whole), str(path))


def _specification(ct: Any, part: TranslatedPart) -> int:
    """iOS 18 has states; what iOS 17 has runs there too."""
    return int(ct._SPECIFICATION_VERSION_IOS_18 if part.states else ct._SPECIFICATION_VERSION_IOS_17)


def _set_sizes(proto: Any, inputs: Sequence[Port]) -> None:
    """What sizes that vary may be: a list of shapes where one input alone varies and its profile lists them, else ranges."""
    open_ports = [port for port in inputs if port.sizes]
    for port in open_ports:
        array = next(f for f in proto.description.input if f.name == port.feature).type.multiArrayType
        array.ClearField("ShapeFlexibility")
        del array.shape[:]
        array.shape.extend(_shape_with(port, [sizes.low for sizes in port.sizes.values()]))
        if len(open_ports) == 1 and all(sizes.choices for sizes in port.sizes.values()):
            for chosen in itertools.product(*(sizes.choices for sizes in port.sizes.values())):
                array.enumeratedShapes.shapes.add().shape.extend(_shape_with(port, chosen))
            continue
        for axis, size in enumerate(port.shape):
            limits = array.shapeRange.sizeRanges.add()
            limits.lowerBound = port.sizes[axis].low if axis in port.sizes else size
            limits.upperBound = port.sizes[axis].high if axis in port.sizes else size


def _shape_with(port: Port, chosen: Sequence[int]) -> list[int]:
    given = dict(zip(port.sizes, chosen, strict=True))
    return [given.get(axis, size) for axis, size in enumerate(port.shape)]


def _noted(port: Port) -> dict[str, Any]:
    return {"name": port.name, "feature": port.feature, "dtype": int(port.dtype), "shape": list(port.shape)}


def ports_of(note: str) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
    """Inputs and outputs, from a package's note of them."""
    inputs, outputs = (
        tuple(Port(p["name"], p["feature"], DType(p["dtype"]), tuple(p["shape"])) for p in ports) for ports in json.loads(note)
    )
    return inputs, outputs


def note_of(part: TranslatedPart) -> str:
    """What `ports_of` reads."""
    return json.dumps([[_noted(p) for p in ports] for ports in (part.inputs, part.outputs)])


def packed(folder: Path, note: str) -> bytes:
    """A folder and a note as one block of bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("note", note)
        for file in sorted(folder.rglob("*")):  # folders too: packages without weights have an empty one
            archive.write(file, f"{folder.name}/{file.relative_to(folder).as_posix()}")
    return buffer.getvalue()


def unpacked(data: bytes, into: Path) -> tuple[Path, str]:
    """The folder, below `into`, and the note.

    Raises:
        ValueError: it is no such block, or names files elsewhere.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            note = archive.read("note").decode()
            names = [n for n in archive.namelist() if n != "note"]
            if not names or any(n.startswith("/") or ".." in n.split("/") for n in names):
                raise ValueError("a block of a compiled package names no files, or files elsewhere")
            archive.extractall(into, names)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ValueError(f"no block of a compiled package: {error}") from error
    return into / names[0].split("/", maxsplit=1)[0], note
