"""Options of both providers under onnxruntime's names, and what they mean for a build and a run."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from intarsia.errors import InvalidArgument, NotImplemented, nearest
from intarsia.lazy_dataclass import dataclass
from intarsia.providers.options import FIRST_DEVICE, NO_LIMIT, DeviceId, Nbytes
from intarsia.providers.tensorrt.chips import CHIPS


@dataclass(frozen=True)
class Settings:
    """What the options of either provider ask for.

    Attributes:
        workspace_nbytes: scratch memory that kernels may have; 0: all of the device's.
        shared_nbytes: shared memory that kernels may have; 0: all.
        half: "", "float16" or "bfloat16": what float32 is computed in.
        int8: quantised nodes are taken.
        cache, cache_path, cache_prefix: whether engines are stored in a folder of the user's, and where, under which names.
        profiles: the texts of least, best and largest input shapes.
        stripped: engines are stored without weights, which they get when they are loaded.
        chips: names of chips ("SM89") that engines are built for; (): the one that is there.
        runtime_cache_path: folder of what TensorRT-RTX compiled for this machine; "": Intarsia's own cache.
        timing_cache_path: folder of measured times of kernels; "": Intarsia's own cache; None: none are stored.
        cuda_graph: launches of a run become a graph.
        level: how long the builder searches, 0 to 5.
        streams: further streams for branches; -1: the builder's choice.
        sparse: weights whose zeros lie as sparse tensor cores want them are stored so.
        hardware_compatible: engines run on later chips as well.
        excluded: operators that are left to other providers.
        least_nodes: smaller parts are left to other providers.
        plugins: shared libraries with plugins.
        verbose: what the builder says goes to the log.
    """

    workspace_nbytes: int = 0
    shared_nbytes: int = 0
    half: str = ""
    int8: bool = True
    cache: bool = False
    cache_path: str = ""
    cache_prefix: str = ""
    profiles: tuple[str, str, str] = ("", "", "")
    stripped: bool = False
    chips: tuple[str, ...] = ()
    runtime_cache_path: str = ""
    timing_cache_path: str | None = None
    cuda_graph: bool = False
    level: int = 3
    streams: int = -1
    sparse: bool = False
    hardware_compatible: bool = False
    excluded: frozenset[str] = frozenset()
    least_nodes: int = 1
    plugins: tuple[str, ...] = ()
    verbose: bool = False


def _listed(text: str, separator: str = ",") -> tuple[str, ...]:
    return tuple(filter(None, (name.strip() for name in text.replace(";", separator).split(separator))))


def chips_of(text: str, where: str) -> tuple[str, ...]:
    """Names of `CHIPS` from a list of them. Raises InvalidArgument, whose message `where` begins."""
    names = tuple(name.upper() for name in _listed(text))
    for name in names:
        if name not in CHIPS:
            raise InvalidArgument(f"{where}: {name!r} is no chip that engines are built for; {nearest(name, CHIPS)}")
    return names


def _stream(user: int | None, has: bool) -> None:
    if has and user is None:
        raise InvalidArgument("has_user_compute_stream is set: expected the stream's address as user_compute_stream")


@dataclass(frozen=True)
class TensorrtOptions:
    """onnxruntime's options of TensorrtExecutionProvider, and the documents' own.

    Those of `WITHOUT_EFFECT` are taken for programs' sake and said in the log; those of `REFUSED` are errors when set.
    """

    device_id: DeviceId = FIRST_DEVICE
    user_compute_stream: int | None = None  # address of a stream (0: the default one); None: a stream of its own
    has_user_compute_stream: bool = False  # follows from user_compute_stream
    trt_max_workspace_size: Nbytes = NO_LIMIT  # bytes of scratch memory; 0: all
    trt_max_partition_iterations: int = 1000
    trt_min_subgraph_size: int = 1  # smaller parts are left to other providers
    trt_fp16_enable: bool = False  # float32 is computed in float16, but for operators that lose by it
    trt_bf16_enable: bool = False  # ... in bfloat16
    trt_int8_enable: bool = False  # QuantizeLinear and DequantizeLinear are taken
    trt_strict_type_constraints: bool = True  # every value has the model's type; False is without effect
    trt_int8_calibration_table_name: str = ""
    trt_int8_use_native_calibration_table: bool = False
    trt_dla_enable: bool = False
    trt_dla_core: int = 0
    trt_engine_cache_enable: bool = False  # engines are stored in trt_engine_cache_path, not in Intarsia's cache
    trt_engine_cache_path: str = ""  # "": the current folder, as in onnxruntime
    trt_engine_cache_prefix: str = ""
    trt_engine_hw_compatible: bool = False  # engines run on later chips as well
    trt_weight_stripped_engine_enable: bool = False  # engines are stored without weights and refitted when loaded
    trt_onnx_model_folder_path: str = ""
    trt_engine_decryption_enable: bool = False
    trt_engine_decryption_lib_path: str = ""
    trt_force_sequential_engine_build: bool = False
    trt_context_memory_sharing_enable: bool = False
    trt_layer_norm_fp32_fallback: bool = False  # LayerNormalization stays in float32
    trt_timing_cache_enable: bool = False  # measured times of kernels are stored
    trt_timing_cache_path: str = ""
    trt_force_timing_cache: bool = False  # ... of other GPUs of the same kind, too
    trt_detailed_build_log: bool = False
    trt_build_heuristics_enable: bool = False
    trt_sparsity_enable: bool = False
    trt_builder_optimization_level: int = 3
    trt_auxiliary_streams: int = -1
    trt_tactic_sources: str = ""
    trt_extra_plugin_lib_paths: str = ""
    trt_profile_min_shapes: str = ""  # "input:1x3x224x224,other:1x5"
    trt_profile_opt_shapes: str = ""
    trt_profile_max_shapes: str = ""
    trt_cuda_graph_enable: bool = False
    trt_dump_subgraphs: bool = False
    trt_dump_ep_context_model: bool = False
    trt_ep_context_file_path: str = ""
    trt_ep_context_embed_mode: int = 0
    trt_op_types_to_exclude: str = ""
    trt_preview_features: str = ""
    trt_load_user_initializer: bool = False
    trt_compute_capabilities: str = ""  # not onnxruntime's: chips to build for, "SM80,SM89"

    WITHOUT_EFFECT: ClassVar[tuple[str, ...]] = (
        "trt_max_partition_iterations", "trt_int8_use_native_calibration_table", "trt_dla_core", "trt_onnx_model_folder_path",
        "trt_force_sequential_engine_build", "trt_context_memory_sharing_enable", "trt_build_heuristics_enable",
        "trt_tactic_sources", "trt_dump_subgraphs", "trt_preview_features", "trt_load_user_initializer",
        "trt_ep_context_embed_mode", "trt_strict_type_constraints",
    )  # fmt: skip
    REFUSED: ClassVar[dict[str, str]] = {
        "trt_int8_calibration_table_name": "give a model with QuantizeLinear and DequantizeLinear instead",
        "trt_dla_enable": "the deep learning accelerators of embedded chips are not used",
        "trt_engine_decryption_enable": "engines are not encrypted",
        "trt_engine_decryption_lib_path": "engines are not encrypted",
        "trt_dump_ep_context_model": "set the session configuration entry 'ep.context_enable' to '1' instead",
        "trt_ep_context_file_path": "set the session configuration entry 'ep.context_file_path' instead",
    }

    def __post_init__(self) -> None:
        _refuse(self)
        _stream(self.user_compute_stream, self.has_user_compute_stream)
        if self.trt_fp16_enable and self.trt_bf16_enable:
            raise InvalidArgument("trt_fp16_enable and trt_bf16_enable: expected at most one of them")
        if not 0 <= self.trt_builder_optimization_level <= 5:
            raise InvalidArgument(
                f"trt_builder_optimization_level: expected a number from 0 to 5, got {self.trt_builder_optimization_level}"
            )
        chips_of(self.trt_compute_capabilities, "trt_compute_capabilities")

    def settings(self) -> Settings:
        """What they ask for."""
        return Settings(
            workspace_nbytes=self.trt_max_workspace_size,
            half="float16" if self.trt_fp16_enable else "bfloat16" if self.trt_bf16_enable else "",
            int8=self.trt_int8_enable,
            cache=self.trt_engine_cache_enable,
            cache_path=self.trt_engine_cache_path or ".",
            cache_prefix=self.trt_engine_cache_prefix,
            profiles=(self.trt_profile_min_shapes, self.trt_profile_opt_shapes, self.trt_profile_max_shapes),
            stripped=self.trt_weight_stripped_engine_enable,
            chips=chips_of(self.trt_compute_capabilities, "trt_compute_capabilities"),
            timing_cache_path=self.trt_timing_cache_path if self.trt_timing_cache_enable else None,
            cuda_graph=self.trt_cuda_graph_enable,
            level=self.trt_builder_optimization_level,
            streams=self.trt_auxiliary_streams,
            sparse=self.trt_sparsity_enable,
            hardware_compatible=self.trt_engine_hw_compatible,
            excluded=frozenset(_listed(self.trt_op_types_to_exclude)),
            least_nodes=self.trt_min_subgraph_size,
            plugins=_listed(self.trt_extra_plugin_lib_paths, ";"),
            verbose=self.trt_detailed_build_log,
        )

    @property
    def in_float32(self) -> tuple[str, ...]:
        """Operators that float16 spares besides the usual ones."""
        return ("LayerNormalization",) if self.trt_layer_norm_fp32_fallback else ()


@dataclass(frozen=True)
class RtxOptions:
    """onnxruntime's options of NvTensorRTRTXExecutionProvider; the documents' of the other provider are taken, too."""

    device_id: DeviceId = FIRST_DEVICE
    user_compute_stream: int | None = None
    has_user_compute_stream: bool = False
    user_aux_stream_array: int = 0
    nv_length_aux_stream_array: int = 0
    nv_max_workspace_size: Nbytes = NO_LIMIT
    nv_max_shared_mem_size: Nbytes = NO_LIMIT
    nv_dump_subgraphs: bool = False
    nv_detailed_build_log: bool = False
    nv_profile_min_shapes: str = ""
    nv_profile_opt_shapes: str = ""
    nv_profile_max_shapes: str = ""
    nv_multi_profile_enable: bool = False  # several profiles follow from shapes that name an input several times
    nv_use_external_data_initializer: bool = False
    nv_runtime_cache_path: str = ""
    enable_cuda_graph: bool = True
    nv_op_types_to_exclude: str = ""
    nv_precision: Literal["", "float16", "bfloat16"] = ""  # not onnxruntime's, which leaves it to the model
    nv_compute_capabilities: str = ""  # not onnxruntime's: chips to build for, "SM80,SM89"

    WITHOUT_EFFECT: ClassVar[tuple[str, ...]] = (
        "user_aux_stream_array", "nv_length_aux_stream_array", "nv_dump_subgraphs", "nv_use_external_data_initializer",
        "nv_multi_profile_enable",
    )  # fmt: skip
    REFUSED: ClassVar[dict[str, str]] = {}

    def __post_init__(self) -> None:
        _stream(self.user_compute_stream, self.has_user_compute_stream)
        chips_of(self.nv_compute_capabilities, "nv_compute_capabilities")

    def settings(self) -> Settings:
        """What they ask for."""
        return Settings(
            workspace_nbytes=self.nv_max_workspace_size,
            shared_nbytes=self.nv_max_shared_mem_size,
            half=self.nv_precision,
            profiles=(self.nv_profile_min_shapes, self.nv_profile_opt_shapes, self.nv_profile_max_shapes),
            chips=chips_of(self.nv_compute_capabilities, "nv_compute_capabilities"),
            runtime_cache_path=self.nv_runtime_cache_path,
            cuda_graph=self.enable_cuda_graph,
            excluded=frozenset(_listed(self.nv_op_types_to_exclude)),
            verbose=self.nv_detailed_build_log,
        )

    @property
    def in_float32(self) -> tuple[str, ...]:
        return ()


def _refuse(options: Any) -> None:
    for name, instead in type(options).REFUSED.items():
        if getattr(options, name):
            raise NotImplemented(f"option {name!r}: {instead}")


def without_effect(options: Any) -> list[str]:
    """Options that were set and change nothing here."""
    from dataclasses import fields

    defaults = {f.name: f.default for f in fields(options)}
    return [name for name in type(options).WITHOUT_EFFECT if getattr(options, name) != defaults[name]]
