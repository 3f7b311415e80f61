"""Outputs of two models, or of a model and what was saved of another run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from intarsia.debug.compare import Difference, Providers, difference, session_on
from intarsia.errors import InvalidArgument, NoSuchFile
from intarsia.lazy_dataclass import dataclass
from intarsia.options.session_options import SessionOptions
from intarsia.printable import file_name

_PREFIXES = ("", "out_", "output_")


@dataclass(frozen=True)
class OutputComparison:
    """How two sets of outputs differ.

    Attributes:
        labels: what they are outputs of; the second is taken to be right.
        compared: names of the outputs that both have.
        differences: those beyond the tolerance, by output.
        only: outputs that one alone has, by label.
    """

    labels: tuple[str, str]
    compared: tuple[str, ...]
    differences: tuple[Difference, ...]
    only: Mapping[str, tuple[str, ...]]

    @property
    def equal(self) -> bool:
        return not self.differences and not any(self.only.values())

    def __str__(self) -> str:
        left, right = self.labels
        head = f"{left} and {right} agree" if self.equal else f"{left} and {right} part:"
        lines = [f"  output {each}" for each in self.differences]
        lines += [f"  {label} alone has {', '.join(map(repr, names))}" for label, names in self.only.items() if names]
        count = f"{len(self.compared)} output{'s' * (len(self.compared) != 1)}"
        return "\n".join([f"{head} in {count}" if self.equal else head, *lines])


def compare_outputs(
    labels: tuple[str, str], left: Mapping[str, Any], right: Mapping[str, Any], *, rtol: float = 1e-4, atol: float = 1e-6
) -> OutputComparison:
    """Compare outputs by name.

    Args:
        labels: what they are outputs of.
        left, right: arrays by name; the second are taken to be right.
        rtol, atol: values differ where |a - b| is more than atol + rtol * the tensor's largest magnitude.
    """
    shared = tuple(name for name in right if name in left)
    found = (difference(name, left[name], right[name], rtol, atol) for name in shared)
    only = {
        labels[0]: tuple(name for name in left if name not in right), labels[1]: tuple(n for n in right if n not in left)
    }  # fmt: skip
    return OutputComparison(labels, shared, tuple(d for d in found if d is not None), only)


def compare_models(
    models: Sequence[Any], feed: Mapping[str, Any], providers: Providers = "CPUExecutionProvider", *, rtol: float = 1e-4,
    atol: float = 1e-6, sess_options: SessionOptions | None = None,
) -> OutputComparison:  # fmt: skip
    """Run two models on one feed and compare their outputs: by name, or by place where no name is in both.

    Args:
        models: two, as `InferenceSession` takes them; the second is taken to be right.
        feed: inputs as `run` takes them, for both. Where the second has inputs of other names, they go by place.
        providers: a name, or a list as a session takes it, for both.
        rtol, atol: values differ where |a - b| is more than atol + rtol * the tensor's largest magnitude.
        sess_options: of both sessions.

    Raises:
        InvalidArgument: not two models, or models of different numbers of inputs.
        As `InferenceSession` and `run`.
    """
    if len(models) != 2:
        raise InvalidArgument(f"compare_models: expected two models, got {len(models)}")
    sessions = [session_on(providers, model, sess_options) for model in models]
    labels = tuple(str(m) if isinstance(m, str | Path) else f"model {i + 1}" for i, m in enumerate(models))
    names = [[info.name for info in session.get_outputs()] for session in sessions]
    left, right = (
        dict(zip(each, session.run(None, _fed(session, feed)), strict=True))
        for each, session in zip(names, sessions, strict=True)
    )
    if len(left) == len(right) and not set(left) & set(right):
        right = dict(zip(left, right.values(), strict=True))
    return compare_outputs((labels[0], labels[1]), left, right, rtol=rtol, atol=atol)


def _fed(session: Any, feed: Mapping[str, Any]) -> dict[str, Any]:
    """The feed under the session's names."""
    names = [info.name for info in session.get_inputs()]
    if set(names) <= set(feed):
        return {name: feed[name] for name in names}
    if len(names) != len(feed):
        raise InvalidArgument(f"a model has the inputs {names}, and the other {list(feed)}: expected as many")
    return dict(zip(names, feed.values(), strict=True))


def saved_outputs(path: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Arrays that were saved of a run: an .npz with an array for each output (`NAME`, `out_NAME`, `output_NAME`), a folder
    with `NAME.npy`, or ONNX's test data (`output_0.pb` and so on), in the model's order.

    Args:
        path: the file or the folder.
        names: the model's outputs.

    Raises:
        NoSuchFile: it does not exist.
        InvalidArgument: nothing in it belongs to an output.
    """
    if not path.exists():
        raise NoSuchFile(f"{str(path)!r} does not exist; expected an .npz, or a folder of .npy or output_N.pb")
    found = _of_folder(path, names) if path.is_dir() else _of_archive(path, names)
    if not found:
        raise InvalidArgument(f"{str(path)!r} has no array for an output of the model: {', '.join(names)}")
    return found


def _of_archive(path: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            keys = {name: prefix + name for name in names for prefix in _PREFIXES if prefix + name in archive}
            return {name: archive[key] for name, key in keys.items()}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise InvalidArgument(f"cannot read {str(path)!r} as an .npz file: {error}") from error


def _of_folder(path: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    found = {}
    for i, name in enumerate(names):
        for file in (path / f"{file_name(name)}.npy", path / f"output_{i}.pb"):
            if file.is_file():
                found[name] = _array(file)
                break
    return found


def _array(file: Path) -> np.ndarray:
    try:
        if file.suffix == ".npy":
            array: np.ndarray = np.load(file, allow_pickle=False)
            return array
        import onnx
        from onnx import numpy_helper

        return np.asarray(numpy_helper.to_array(onnx.load_tensor(str(file))))
    except (OSError, ValueError, TypeError) as error:
        raise InvalidArgument(f"cannot read {str(file)!r}: {error}") from error
    except Exception as error:  # protobuf's DecodeError, whose package is not to be imported for its name
        raise InvalidArgument(f"{str(file)!r} is no TensorProto: {error}") from error
