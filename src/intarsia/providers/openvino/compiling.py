"""From a part to an `openvino.CompiledModel`, and the check that it computes in the requested precision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from intarsia.errors import EPFail, InvalidArgument, OutOfMemory, nearest
from intarsia.graph.model import Graph, TensorType
from intarsia.printable import get_logger
from intarsia.providers.openvino.model import mismatch, read
from intarsia.providers.openvino.options import OpenVINOOptions
from intarsia.providers.openvino.runtime import core, shortened

_logger = get_logger("intarsia.providers.openvino")
_TYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


class Compiler:
    """Compiles one part, for any shapes or for given ones.

    With `disable_dynamic_shapes`, a part with varying shapes stays an uncompiled model and compiled for each combination
    of input shapes. `model` is the part as OpenVINO has read it, where it has.
    """

    def __init__(self, graph: Graph, options: OpenVINOOptions, config: dict[str, Any], model: Any = None) -> None:
        self.graph, self.options, self.config = graph, options, config
        self._check_inputs()
        dynamic = any(
            not isinstance(d, int) for v in graph.inputs if isinstance(v.type, TensorType) for d in v.type.shape or ()
        )
        self.static = options.disable_dynamic_shapes and dynamic
        self._model = model if model is not None else read(graph, exact_nan=options.exact_nan)
        if why := mismatch(self._model, graph):
            raise EPFail(f"openvino: {why}")
        self.passed_through = frozenset(
            i for i, port in enumerate(self._model.outputs)
            if port.get_node().input_value(0).get_node().get_type_name() == "Parameter"
        )  # fmt: skip
        if config.get("CACHE_DIR"):
            try:
                Path(config["CACHE_DIR"]).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise EPFail(
                    f"option 'cache_dir': {config['CACHE_DIR']!r} cannot be made: {error}"
                ) from error

    def _check_inputs(self) -> None:
        names = self.graph.input_names()
        for option, given in (("reshape_input", self.options.shapes), ("layout", self.options.layouts)):
            if given and not given.keys() & set(names):
                _logger.warning(
                    "option %r names %s, which are no inputs of this part; %s",
                    option,
                    ", ".join(given),
                    nearest(next(iter(given)), names),
                )

    def compile(self, shapes: tuple[tuple[int, ...], ...] | None) -> Any:
        """The compiled model for these input shapes (None: for any).

        Raises:
            EPFail: OpenVINO cannot compile it, or would compute in another precision.
            OutOfMemory: memory is not enough.
        """
        model = self._model
        if shapes is not None:
            model = model.clone()
            model.reshape(dict(enumerate(map(list, shapes))))
        else:
            self._bound(model)
            if not self.static:
                self._model = None
        try:
            compiled = self._compiled(model)
        except MemoryError as error:
            raise OutOfMemory(f"openvino: no memory to compile {len(self.graph.nodes)} nodes; use a smaller model") from error
        except RuntimeError as error:
            raise EPFail(f"openvino cannot compile the part for {self.options.device}: {shortened(error)}") from error
        check_precision(compiled, self.config, self.options.device)
        return compiled

    def _compiled(self, model: Any) -> Any:
        device = self.options.device
        if self.options.context:
            remote = core().create_context(device, {"CONTEXT_TYPE": "OCL", "OCL_CONTEXT": self.options.context})
            return core().compile_model(model, remote, self.config)
        return core().compile_model(model, device, self.config)

    def _bound(self, model: Any) -> None:
        """`reshape_input` and `layout` of those inputs that this part has."""
        import openvino

        bounds: dict[int, Any] = {}
        for i, name in enumerate(self.graph.input_names()):
            if name in self.options.layouts:
                model.inputs[i].get_node().set_layout(openvino.Layout(self.options.layouts[name]))
            if name not in self.options.shapes:
                continue
            dims = self.options.shapes[name]
            rank = len(model.inputs[i].partial_shape)
            if rank != len(dims):
                raise InvalidArgument(f"option 'reshape_input': {name!r} has {rank} dimensions, got {len(dims)}: {list(dims)}")
            bounds[i] = openvino.PartialShape(", ".join(dims).join("[]"))
        if bounds:
            try:
                model.reshape(bounds)
            except RuntimeError as error:
                raise InvalidArgument(
                    f"option 'reshape_input': the model does not take these sizes: {shortened(error)}"
                ) from error


def check_precision(compiled: Any, config: dict[str, Any], device: str) -> None:
    """Raise EPFail where the model computes in another precision than `config` requests."""
    requested = config.get("INFERENCE_PRECISION_HINT")
    if requested not in _TYPES:
        return
    try:
        found = str(compiled.get_property("INFERENCE_PRECISION_HINT"))
    except RuntimeError:
        return  # AUTO, HETERO and MULTI do not say: their devices were given the hint
    if _TYPES[requested] not in found:
        raise EPFail(
            f"openvino compiled for {device} in {found} where {_TYPES[requested]} was requested; "
            "remove the option cache_dir, or clear that folder"
        )
