"""A session behind ONNX's `BackendRep`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onnx.backend.base import BackendRep

from intarsia.errors import InvalidArgument
from intarsia.options.session_options import RunOptions
from intarsia.session.inference_session import InferenceSession

RUN_OPTIONS = frozenset({"log_severity_level", "log_verbosity_level", "logid", "only_execute_path_to_fetches"})
"""Properties of `RunOptions` that may be given as keywords."""


class IntarsiaBackendRep(BackendRep):  # type: ignore[misc] # onnx has no types
    """A prepared model."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session

    def run(self, inputs: Any, **kwargs: Any) -> list[Any]:
        """All outputs.

        Args:
            inputs: a list (or dict) of values, one per model input; a single value for a model of one input. A dict is a
                feed by name, but for a model whose one input is a map it is that map.
            kwargs: those of `RUN_OPTIONS` are set; others that `RunOptions` has are errors; unknown ones are not for this call.

        Raises:
            InvalidArgument: an option that is not permitted, or too few inputs; as `InferenceSession.run`.
        """
        options = RunOptions()
        for name, value in kwargs.items():
            if name in RUN_OPTIONS:
                setattr(options, name, value)
            elif name in RunOptions.PROPERTIES:
                raise InvalidArgument(
                    f"RunOptions attribute '{name}' is not permitted via the backend API. Allowed: {sorted(RUN_OPTIONS)}"
                )
        taken = self._session.get_inputs()
        names = [a.name for a in taken]
        if isinstance(inputs, Mapping) and len(taken) == 1 and taken[0].type.startswith("map("):
            feed = {names[0]: inputs}
        elif isinstance(inputs, Mapping):
            feed = dict(inputs)
        elif isinstance(inputs, Sequence) and not isinstance(inputs, (str, bytes)):
            if len(inputs) < len(names):
                raise InvalidArgument(f"Model expects {len(names)} inputs ({names}), got {len(inputs)}")
            feed = dict(zip(names, inputs, strict=False))
        elif len(names) == 1:
            feed = {names[0]: inputs}
        else:
            raise InvalidArgument(f"Model expects {len(names)} inputs ({names}), got one value; give a list")
        return self._session.run(None, feed, options)


OnnxRuntimeBackendRep = IntarsiaBackendRep
