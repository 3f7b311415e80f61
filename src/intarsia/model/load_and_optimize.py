"""The stages before partitioning: load, fix free dimensions, replace initializers, infer types, optimise."""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.errors import InvalidArgument, InvalidGraph, NotImplemented, UnknownOption, nearest
from intarsia.graph.dims import Dim, Expr, fresh_symbol, symbols_of, written_name
from intarsia.graph.dtypes import DType
from intarsia.graph.formats.external_data import ExternalFiles
from intarsia.graph.formats.file_bytes import FileBytes
from intarsia.graph.leniency import overlook, strictly
from intarsia.graph.load import load
from intarsia.graph.model import Constant, Graph, Node, OptionalType, SequenceType, TensorType, Value, ValueType
from intarsia.model.warm_start import is_same_content
from intarsia.options.config_keys import OPTIMIZERS_ELSEWHERE
from intarsia.options.session_options import SessionOptions
from intarsia.printable import get_logger
from intarsia.values.feeds import converted

if TYPE_CHECKING:
    from intarsia.model.signature_verification import SignedFiles

logger = get_logger("intarsia.load")

_RELEASED = {"": 26, "ai.onnx.ml": 5, "com.microsoft": 1, "ai.onnx.preview.training": 1}
"""The newest released version of each operator set that a model may leave out."""


def load_model(source: Any, options: SessionOptions, signed: SignedFiles | None = None) -> Graph:
    """The model as a graph, with the overrides that `options` requests. `signed`: files that alone may be read.

    Raises:
        InvalidArgument: `source` is nothing that can be loaded, or an override names nothing in the model.
        NoSuchFile, InvalidProtobuf, InvalidGraph, ExternalDataError: as `graph.load`, and as `model.untrusted.check_graph`.
    """
    folder = options.config("session.model_external_initializers_file_folder_path")
    FileBytes.same_content = staticmethod(is_same_content)
    with strictly(options.untrusted):
        graph = with_imports(load(source, base_dir=folder or None, external=_external_files(options, signed)))
    if options.untrusted:
        from intarsia.model.untrusted import check_graph

        check_graph(graph, options)
    if graph.metadata.ir_version < 4:  # before IR version 4 every initializer had to be listed as an input too
        graph.overridable = []
    sizes = {**_denoted(source, graph, options.denotation_overrides), **options.free_dimension_overrides}
    graph = with_sizes(graph, sizes) if sizes else graph
    return with_initializers(graph, options.initializers) if options.initializers else graph


def with_imports(graph: Graph) -> Graph:
    """A graph that imports the operator sets of all its nodes: those that the model leaves out, as programs that write
    com.microsoft's operators by hand often do, at the version that onnxruntime takes, the newest released."""
    if not graph.opset_imports:
        return graph  # before IR version 3
    used: set[str] = set()
    for nodes in (graph.nodes, *(function.nodes for function in graph.functions.values())):
        _add_domains(nodes, used)
    own = {domain for domain, *_ in graph.functions}
    missing = {domain: _RELEASED[domain] for domain in sorted(used & _RELEASED.keys() - graph.opset_imports.keys() - own)}
    if missing:
        listed = ", ".join(f"{domain or 'ai.onnx'} (taken as version {version})" for domain, version in missing.items())
        overlook(logger, f"{graph.metadata.path or 'the model'} does not import operator sets that it uses: {listed}")
        graph.opset_imports = {**graph.opset_imports, **missing}
    return graph


def _add_domains(nodes: Sequence[Node], domains: set[str]) -> None:
    """Add the domains of nodes, those in subgraphs included."""
    for node in nodes:
        domains.add(node.domain)
        if node.attributes:
            for subgraph in node.subgraphs:
                _add_domains(subgraph.nodes, domains)


def _external_files(options: SessionOptions, signed: SignedFiles | None) -> Callable[[Path | None, str], ExternalFiles]:
    """What finds external data: in memory where it was given, nowhere for tensors that are replaced, else in files."""
    kind: Callable[..., ExternalFiles] = ExternalFiles
    if options.untrusted:
        from intarsia.model.untrusted import NoFiles

        kind = NoFiles
    if signed is not None:
        from intarsia.model.signature_verification import SignedExternalFiles

        kind = functools.partial(SignedExternalFiles, signed=signed)
    allowed = [folder for folder in options.whitelisted_data_folders.split(";") if folder]
    return functools.partial(kind, contents=options.external_files, unread=options.initializers.keys(), allowed=allowed)


_CONFIG_PROPERTIES = (
    "intra_op_num_threads", "inter_op_num_threads", "execution_mode", "graph_optimization_level", "enable_profiling",
)  # fmt: skip


def configured(graph: Graph, options: SessionOptions) -> SessionOptions:
    """`options` with what the model's metadata entry "ort_config" says under "session_options".

    Raises:
        InvalidArgument: the entry is not JSON of that form, or has a value that an option does not take.
    """
    text = graph.metadata.properties.get("ort_config")
    if text is None:
        return options
    import json

    try:
        given = json.loads(text).get("session_options", {})
        items = dict(given).items()
    except (ValueError, AttributeError, TypeError) as error:
        raise InvalidArgument(f"the model's metadata entry 'ort_config' is not a JSON object of options: {error}") from error
    changed = copy.deepcopy(options)
    for name, value in items:
        if name not in _CONFIG_PROPERTIES:
            raise InvalidArgument(f"the model's 'ort_config' has an option {name!r}; {nearest(name, _CONFIG_PROPERTIES)}")
        default = type(options.PROPERTIES[name].default)
        try:
            setattr(changed, name, value if default is int else default(value))
        except ValueError as error:
            raise InvalidArgument(f"the model's 'ort_config': {name} is {value!r}: {error}") from error
    return changed


def with_sizes(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """A graph in which the symbolic dimensions named in `sizes` have these sizes.

    Raises:
        InvalidArgument: no input has a dimension of that name.
    """
    known = {s for v in graph.inputs for d in _dims(v.type) for s in symbols_of(d)}
    shown = {s: name for s in known if (name := written_name(s)) is not None}
    sizes = {**{s: sizes[name] for s, name in shown.items() if name in sizes}, **sizes}
    for name in sizes:
        if name not in known and name not in shown.values():
            raise InvalidArgument(
                f"free dimension override: no input has a dimension {name!r}; {nearest(name, shown.values())}"
            )
    fixed = graph.clone()
    fixed.inputs = [Value(v.name, _sized(v.type, sizes), v.doc) for v in graph.inputs]
    fixed.outputs = [Value(v.name, _sized(v.type, sizes), v.doc) for v in graph.outputs]
    fixed.types = {n: t for n, found in graph.types.items() if (t := _sized(found, sizes)) is not None}
    return fixed


def _dims(kind: ValueType | None) -> Sequence[Dim]:
    return kind.shape if isinstance(kind, TensorType) and kind.shape is not None else ()


def _sized(kind: ValueType | None, sizes: Mapping[str, int]) -> ValueType | None:
    if isinstance(kind, TensorType) and kind.shape is not None:
        return type(kind)(kind.dtype, tuple(_substituted(d, sizes) for d in kind.shape))
    if isinstance(kind, (SequenceType, OptionalType)):
        return type(kind)(_sized(kind.element, sizes))
    return kind


def _substituted(dim: Dim, sizes: Mapping[str, int]) -> Dim:
    if not isinstance(dim, Expr) or not dim.symbols & sizes.keys():
        return dim
    return dim.evaluate(sizes) if dim.symbols <= sizes.keys() else dim


def _denoted(source: Any, graph: Graph, overrides: Mapping[str, int]) -> dict[str, int]:
    """Sizes by symbol for the dimensions of `graph`'s inputs that carry one of the denotations in `overrides`."""
    if not overrides:
        return {}
    found: dict[str, int] = {}
    seen: set[str] = set()
    types = {v.name: v.type for v in graph.inputs}
    for name, denotations in _input_denotations(source):
        for dim, denotation in zip(_dims(types.get(name)), denotations, strict=False):
            if denotation in overrides and isinstance(dim, Expr):
                found[str(dim)] = overrides[denotation]
            seen.add(denotation)
    for denotation in overrides:
        if denotation not in seen:
            valid = nearest(denotation, seen - {""})
            raise InvalidArgument(f"free dimension override: no input has the denotation {denotation!r}; {valid}")
    return found


def _input_denotations(source: Any) -> list[tuple[str, list[str]]]:
    import onnx

    if isinstance(source, (str, os.PathLike)):
        model = onnx.load(os.fspath(source), load_external_data=False)
    elif isinstance(source, (bytes, bytearray, memoryview)):
        model = onnx.load_from_string(bytes(source))
    elif hasattr(source, "read"):
        source.seek(0)
        model = onnx.load_from_string(source.read())
    else:
        model = source
    return [(v.name, [d.denotation for d in v.type.tensor_type.shape.dim]) for v in model.graph.input]


def with_initializers(graph: Graph, values: Mapping[str, Any]) -> Graph:
    """A graph whose initializers have the given values.

    Raises:
        InvalidArgument: a name is no initializer, or its value is of another type or shape.
    """
    replaced = graph.clone()
    for name, value in values.items():
        if name not in graph.constants:
            raise InvalidArgument(f"add_initializer: the model has no initializer {name!r}; {nearest(name, graph.constants)}")
        expected = graph.constants[name].type
        array = converted(value, expected, f"initializer {name!r}")
        if array.shape != expected.shape:
            raise InvalidArgument(f"initializer {name!r}: expected shape {list(expected.shape or ())}, got {list(array.shape)}")
        replaced.constants[name] = Constant(name, expected.dtype, array.shape, np.array(array), "add_initializer")
    return replaced


def with_inputs(graph: Graph, names: Sequence[str]) -> Graph:
    """A graph in which these overridable initializers are inputs, after the others."""
    generalised = graph.clone()
    for name in names:
        generalised.inputs.append(Value(name, graph.overridable_type(name)))
        del generalised.constants[name]
    generalised.overridable = [n for n in graph.overridable if n not in names]
    return generalised


def with_own_sizes(graph: Graph) -> Graph:
    """A graph in which no two dimensions of its inputs share a symbol, for models that use one name for several sizes."""
    generalised = graph.clone()
    generalised.inputs = [Value(v.name, _own_sizes(v.type), v.doc) for v in graph.inputs]
    generalised.outputs = [Value(v.name, _own_sizes(v.type), v.doc) for v in graph.outputs]
    generalised.types = {n: t for n, t in graph.types.items() if all(isinstance(d, int) for d in _dims(t))}
    return generalised


def _own_sizes(kind: ValueType | None) -> ValueType | None:
    if isinstance(kind, TensorType) and kind.shape is not None:
        return type(kind)(kind.dtype, tuple(d if isinstance(d, int) else fresh_symbol() for d in kind.shape))
    return kind


def optimised(graph: Graph, options: SessionOptions, disabled: frozenset[str]) -> Graph:
    """The graph after the rewrites of the options' level, its types inferred and its nodes' versions resolved.

    Raises:
        UnknownOperator: operators that the model needs do not exist; lists all of them.
        InvalidGraph: an output is declared with another element type than it has.
        NotImplemented: it should be saved in ORT format.
        UnknownOption, InvalidArgument: names in `disabled` or the options are no rewrites, or cannot be left out.
    """
    from intarsia.ops import registry
    from intarsia.ops.framework.infer import infer
    from intarsia.ops.framework.missing_operators import require_operators
    from intarsia.ops.framework.registry_scopes import redirected, restored
    from intarsia.passes import optimize
    from intarsia.passes.disabled_rewrites import DISABLED_KEY, names_in
    from intarsia.passes.level import GraphOptimizationLevel

    disabled = _disabled_rules(disabled | names_in(options.config(DISABLED_KEY)))
    if graph.overridable and not options.optimized_model_filepath:
        graph = graph.clone()
        graph.overridable = []  # a run that overrides one gets a graph of its own (`with_inputs`), so these are constants
    operators = registry()
    graph = redirected(graph, operators)
    require_operators(graph, operators)
    result = optimize(graph, options.graph_optimization_level, disabled=disabled, registry=operators)
    if options.optimized_model_filepath:
        from intarsia.passes import standardize

        saved = restored(standardize(result.graph))
        if options.graph_optimization_level is GraphOptimizationLevel.ORT_ENABLE_BASIC:
            saved = _with_types_of(saved, set(_typed_names(graph)))
        _save(saved, options)
    inferred = infer(result.graph, operators).graph
    with strictly(options.untrusted):
        _check_outputs(inferred)
    return inferred


def _disabled_rules(names: frozenset[str]) -> frozenset[str]:
    """Of the rewrites that a session leaves out, the rules of the optimiser: others are passes of the CPU provider."""
    names -= OPTIMIZERS_ELSEWHERE
    if not names:
        return names
    from intarsia.passes import rule_names
    from intarsia.providers.cpu.legalize.passes import check_disabled, pass_names

    known = {*rule_names(), *pass_names()}
    for name in sorted(names - known):
        raise UnknownOption(f"no optimisation rule is called {name!r}, and no pass of the CPU provider: {nearest(name, known)}")
    check_disabled(names.intersection(pass_names()))
    return names.difference(pass_names())


def _typed_names(graph: Graph) -> Iterator[str]:
    """Inner values whose types the model declares, those of bodies too."""
    yield from graph.types
    for node in graph.nodes:
        for body in node.subgraphs:
            yield from _typed_names(body)


def _with_types_of(graph: Graph, names: AbstractSet[str]) -> Graph:
    """A graph that tells the types of these inner values alone: onnxruntime's tools compare whole models."""
    out = graph.clone()
    own = {name for node in graph.nodes for name in node.outputs} & names
    out.types = {name: kind for name, kind in graph.types.items() if name in own}
    for node in out.nodes:
        node.replace_subgraphs(functools.partial(_with_types_of, names=names))
    return out


def _save(graph: Graph, options: SessionOptions) -> None:
    from intarsia.graph.save import save

    path = Path(options.optimized_model_filepath)
    if options.config("session.save_model_format").upper() == "ORT" or path.suffix == ".ort":
        raise NotImplemented(
            f"{path}: ORT format is read here, not written; expected a file name that ends in .onnx and "
            "session.save_model_format left out"
        )
    file = options.config("session.optimized_model_external_initializers_file_name")
    least = options.config("session.optimized_model_external_initializers_min_size_in_bytes")
    save(graph, path, int(least) if file else None, file or None)


def _check_outputs(graph: Graph) -> None:
    """Raise InvalidGraph where a graph output has another element type than the model declares.

    Among floating-point types it is a warning: converters declare double where operators of ai.onnx.ml give float.
    """
    for value in graph.outputs:
        declared, found = value.type, graph.types.get(value.name)
        if not isinstance(declared, TensorType) or not isinstance(found, TensorType) or declared.dtype is found.dtype:
            continue
        if DType.UNDEFINED in (declared.dtype, found.dtype):
            continue
        message = (
            f"Type Error: Type (tensor({declared.dtype.onnx_name})) of output {value.name!r} of graph {graph.name!r} does "
            f"not match the type that its node gives, (tensor({found.dtype.onnx_name})): correct the model's output"
        )
        if not (declared.dtype.is_floating and found.dtype.is_floating):
            raise InvalidGraph(message)
        overlook(logger, message)
