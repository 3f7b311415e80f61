"""Ranges and histograms of tensors, by name, and their JSON form: what calibration gives and a cache holds."""

from __future__ import annotations

import json
from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from intarsia.errors import InvalidArgument, NoSuchFile, WrongType
from intarsia.graph.formats.atomic_write import replace_text


class CalibrationMethod(Enum):
    """How a tensor's range follows from the values that it had."""

    MinMax = 0
    Entropy = 1
    Percentile = 2
    Distribution = 3


class TensorData:
    """What calibration found of one tensor.

    Keyword arguments become attributes: `lowest`, `highest`, `avg`, `std`, `hist_edges` (arrays or scalars of float32 or
    float16), `hist`, `bins`.

    Raises:
        InvalidArgument: another name, or another element type.
    """

    _allowed: ClassVar[frozenset[str]] = frozenset("avg std lowest highest hist hist_edges bins".split())
    _floats: ClassVar[frozenset[str]] = frozenset("avg std lowest highest hist_edges".split())

    def __init__(self, **kwargs: Any) -> None:
        self._attrs = list(kwargs)
        for name, value in kwargs.items():
            if name not in self._allowed:
                raise InvalidArgument(f"TensorData: expected {', '.join(sorted(self._allowed))}, got {name!r}")
            if name in self._floats and getattr(value, "dtype", None) not in (np.float16, np.float32):
                found = getattr(value, "dtype", type(value).__name__)
                raise InvalidArgument(f"TensorData {name}: expected float32 or float16, Unexpected dtype {found}")
            setattr(self, name, value)

    def _pair(self, first: str, second: str) -> tuple[Any, Any]:
        if not hasattr(self, first) or not hasattr(self, second):
            raise AttributeError(f"TensorData: {first!r} and {second!r} are not both known; known: {', '.join(self._attrs)}")
        return getattr(self, first), getattr(self, second)

    @property
    def range_value(self) -> tuple[Any, Any]:
        """`lowest` and `highest`."""
        return self._pair("lowest", "highest")

    @property
    def avg_std(self) -> tuple[Any, Any]:
        """`avg` and `std`."""
        return self._pair("avg", "std")

    def to_dict(self) -> dict[str, Any]:
        """The attributes, and the class's name as "CLS"."""
        return {**{name: getattr(self, name) for name in self._attrs}, "CLS": type(self).__name__}

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> TensorData:
        """What `to_dict` gave, after JSON too."""
        return cls(**{name: cls._read(name, value) for name, value in d.items() if name != "CLS"})

    @classmethod
    def _read(cls, name: str, value: Any) -> Any:
        if isinstance(value, dict) and value.get("CLS") == "numpy.array":
            return np.array(value["data"], np.dtype(value["dtype"]))
        return np.array(value, np.float32) if name in cls._floats and isinstance(value, (int, float)) else value


class TensorsData:
    """Calibrated tensors by name, and the method that found their ranges.

    Raises:
        WrongType: a name that is no string, or a value that is no TensorData.
    """

    def __init__(self, calibration_method: CalibrationMethod, data: Mapping[str, TensorData | tuple[Any, ...]]) -> None:
        self.calibration_method = calibration_method
        self.data: dict[str, TensorData] = {}
        for name, value in data.items():
            if not isinstance(name, str):
                raise WrongType(f"TensorsData: Keys must be strings not {type(name)}")
            self.data[name] = self._entry(name, value)

    def _entry(self, name: str, value: Any) -> TensorData:
        if isinstance(value, TensorData):
            return value
        if isinstance(value, tuple) and len(value) == 2 and self.calibration_method == CalibrationMethod.MinMax:
            return TensorData(lowest=value[0], highest=value[1])
        if isinstance(value, tuple) and len(value) == 4:
            return TensorData(lowest=value[0], highest=value[1], hist=value[2], bins=value[3])
        raise WrongType(
            f"TensorsData {name!r}: expected TensorData, or (lowest, highest) for MinMax, got {type(value).__name__}"
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def __contains__(self, key: object) -> bool:
        return key in self.data

    def __getitem__(self, key: str) -> TensorData:
        return self.data[key]

    def __setitem__(self, key: str, value: TensorData) -> None:
        if key not in self.data:
            raise InvalidArgument(f"TensorsData: only a calibrated tensor can be set anew; {key!r} is none")
        self.data[key] = value

    def keys(self) -> KeysView[str]:
        return self.data.keys()

    def values(self) -> ValuesView[TensorData]:
        return self.data.values()

    def items(self) -> ItemsView[str, TensorData]:
        return self.data.items()

    def to_dict(self) -> dict[str, Any]:
        """As `CalibrationCacheEncoder` writes it."""
        return {"CLS": type(self).__name__, "data": self.data, "calibration_method": self.calibration_method}

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> TensorsData:
        """What `to_dict` gave, after JSON too."""
        method = d["calibration_method"]
        if isinstance(method, dict):
            method = CalibrationMethod[str(method["value"]).rpartition(".")[2]]
        return cls(method, {name: TensorData.from_dict(value) for name, value in d["data"].items()})


class CalibrationCacheEncoder(json.JSONEncoder):
    """Writes ranges, arrays and NumPy's scalars; each object has its class's name as "CLS"."""

    def default(self, o: Any) -> Any:
        if isinstance(o, (TensorData, TensorsData)):
            return o.to_dict()
        if isinstance(o, np.ndarray):
            return {"data": o.tolist(), "dtype": str(o.dtype), "CLS": "numpy.array"}
        if isinstance(o, CalibrationMethod):
            return {"CLS": type(o).__name__, "value": str(o)}
        return o.item() if isinstance(o, np.generic) else super().default(o)


def save_tensors_data(tensors_data: TensorsData, path: str | Path, *, smooth_quant: bool = False) -> None:
    """Write ranges as JSON; folders are made. The file is replaced as a whole or not at all.

    Args:
        smooth_quant: whether the ranges are those of a model that SmoothQuant has changed.
    """
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**tensors_data.to_dict(), "smooth_quant": smooth_quant}, cls=CalibrationCacheEncoder)
    replace_text(path, text)


def load_tensors_data(path: str | Path) -> TensorsData:
    """What `save_tensors_data` wrote.

    Raises:
        NoSuchFile: there is no such file.
        InvalidArgument: it is a folder, or something else is in it.
    """
    return TensorsData.from_dict(read_cache(path))


def read_cache(path: str | Path) -> dict[str, Any]:
    """The JSON of a calibration cache.

    Raises:
        As `load_tensors_data`.
    """
    place = Path(path)
    if not place.exists():
        raise NoSuchFile(f"calibration cache: no file {str(place)!r}")
    if not place.is_file():
        raise InvalidArgument(f"calibration_cache_path is not a file: {place}")
    try:
        found = json.loads(place.read_text(encoding="utf-8"))
        found["data"], found["calibration_method"]
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidArgument(
            f"{place}: expected ranges as save_tensors_data writes them, got something else: {error}"
        ) from error
    return dict(found)
