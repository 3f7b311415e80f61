"""Session and run configuration entries: every key that is known, its default, and whether it has an effect here.

onnxruntime takes any key, misspelt ones included. Here a misspelt key is an error. Keys of onnxruntime that steer a part of
it that Intarsia does not have are accepted, so that programs run as they are; `effect` is False for those.
"""

from __future__ import annotations

from intarsia.errors import InvalidArgument, UnknownOption, WrongType, nearest
from intarsia.lazy_dataclass import dataclass
from intarsia.log import logger
from intarsia.providers.fallback import as_onnxruntime


@dataclass(frozen=True)
class ConfigKey:
    """One entry: its default, what it does, whether it does it here, and what its values are.

    `kind`: "flag" ("0" or "1"), "int", "text", or words separated by commas.
    """

    default: str
    doc: str
    effect: bool = False
    kind: str = "text"

    def check(self, key: str, value: str) -> None:
        if self.kind == "flag" and value not in ("0", "1"):
            raise InvalidArgument(f"configuration entry {key!r}: expected '0' or '1', got {value!r}")
        if "," in self.kind and value not in self.kind.split(","):
            raise InvalidArgument(f"configuration entry {key!r}: expected one of {self.kind}, got {value!r}")
        if self.kind == "int" and not value.lstrip("-").isdigit():
            raise InvalidArgument(f"configuration entry {key!r}: expected an integer in text, got {value!r}")


def _flag(default: str, doc: str, effect: bool = False) -> ConfigKey:
    return ConfigKey(default, doc, effect, "flag")


def _text(doc: str, default: str = "", effect: bool = False) -> ConfigKey:
    return ConfigKey(default, doc, effect)


def _int(default: str, doc: str, effect: bool = False) -> ConfigKey:
    return ConfigKey(default, doc, effect, "int")


PROPERTY_KEYS: dict[str, str] = {
    "session.intra_op_num_threads": "intra_op_num_threads",
    "session.inter_op_num_threads": "inter_op_num_threads",
    "session.enable_cpu_mem_arena": "enable_cpu_mem_arena",
    "session.enable_mem_pattern": "enable_mem_pattern",
    "session.log_id": "logid",
    "session.log_severity_level": "log_severity_level",
    "session.log_verbosity_level": "log_verbosity_level",
    "session.enable_profiling": "enable_profiling",
    "session.graph_optimization_level": "graph_optimization_level",
    "session.optimized_model_filepath": "optimized_model_filepath",
    "session.execution_mode": "execution_mode",
    "session.use_per_session_threads": "use_per_session_threads",
    "session.use_deterministic_compute": "use_deterministic_compute",
}
"""Entries that set a property of `SessionOptions` in text."""

SESSION_KEYS: dict[str, ConfigKey] = {
    "partition.keep_islands": _flag("0", "give a device every node it takes, however few", True),
    "partition.place": _text("nodes placed by name: 'PATTERN=PROVIDER; ...', shell wildcards", effect=True),
    "session.compile_in_background": ConfigKey(
        "auto",
        "1: the session is there before its kernels are compiled, and the first tier serves runs meanwhile; 0: it waits for "
        "them; auto: as 1 where a process can compile them and leave them in the cache, else as 0",
        True,
        "auto,0,1",
    ),
    "session.first_tier_only": _flag("0", "nothing is compiled for the model: all runs are the first tier's", True),
    "session.cache_weights_mib": ConfigKey("1024", "models up to this size start from the cache; 0: none", True, "int"),
    "session.loop_trips": _int("0", "the most trips of a run's loops together, steps of searches too; 0: any number", True),
    "session.warn_unfed_state": _flag(
        "1", "warn where the first runs never feed an output that looks like a state back into its input", True
    ),
    "session.read_ahead": _flag(
        "1", "a session that begins from the cache has a thread fetch its weights ahead of the first run", True
    ),
    "session.nonfinite": ConfigKey(
        "ignore",
        "where an output has NaN or infinite elements: 'warn' or 'error', naming the node that made the first",
        True,
        "ignore,warn,error",
    ),
    "session.memory_limit_mib": ConfigKey("0", "the most memory that a session and its runs make; 0: no limit", True, "int"),
    "session.creation_timeout_s": ConfigKey("0", "seconds that making the session may take; 0: no limit", True, "int"),
    "session.signature": _text("verify this signature (OpenSSF Model Signing) before the model is read", effect=True),
    "session.signature_public_key": _text("the file of the key that it must be by (PEM, elliptic curve)", effect=True),
    "session.signature_certificates": _text("files of certificates that it must lead to, separated by ;", effect=True),
    "session.signature_folder": _text("the folder that was signed, where that is not the model's", effect=True),
    "untrusted.model_mib": _int("1024", "of untrusted sessions: the largest model", True),
    "untrusted.nodes": _int("100000", "of untrusted sessions: the most nodes, calls of functions written out", True),
    "untrusted.nesting": _int("16", "of untrusted sessions: subgraphs in subgraphs", True),
    "untrusted.memory_mib": _int("2048", "of untrusted sessions: session.memory_limit_mib, where that is 0", True),
    "untrusted.output_mib": _int("512", "of untrusted sessions: the largest results of a run", True),
    "untrusted.seconds": _int("60", "of untrusted sessions: the longest making of a session, and the longest run", True),
    "untrusted.trips": _int("10000000", "of untrusted sessions: session.loop_trips, where that is 0", True),
    "untrusted.process": _flag("0", "of untrusted sessions: in a separate process, whose limits the system holds", True),
    "partition.shapes_on_host": _flag("1", "keep integer shape arithmetic off devices with their own memory", True),
    "session.disable_cpu_ep_fallback": _flag("0", "an error when a node would run on a CPU that was not named", True),
    "session.provider_fallback": _text(
        "when a named provider cannot start or takes no node: 'listed' (another named one may stand in), 'error', 'warn'",
        effect=True,
    ),
    "session.intra_op.allow_spinning": _flag("1", "waiting threads spin before they sleep", True),
    "session.model_external_initializers_file_folder_path": _text("the folder of external data files", effect=True),
    "session.record_ep_graph_assignment_info": _flag("0", "placements are always recorded: see InferenceSession.explain", True),
    "optimization.disable_specified_optimizers": _text(
        "names of rewrite rules and of the CPU's passes to leave out, separated by ;", effect=True
    ),
    "session.disable_prepacking": _flag("0", "no prepacked weights"),
    "session.use_env_allocators": _flag("0", "take memory from the arena of create_and_register_allocator", True),
    "session.load_model_format": _text("ONNX or ORT", "ONNX"),
    "session.save_model_format": _text("ONNX or ORT", "ONNX"),
    "session.set_denormal_as_zero": _flag("0", "denormal numbers count as zero while the CPU provider computes", True),
    "session.disable_quant_qdq": _flag("0", "products of dequantised tensors in float32, not in integers", True),
    "session.arithmetic": ConfigKey(
        "float32",
        "products by weights in less than float32: 'float16', 'float16_weights' (float32 sums of weights stored in 16 bits) or "
        "'bfloat16'; docs/performance/reduced-precision.md says what is lost and what is gained. Products of models of "
        "bfloat16 go by the unit for it, if there is a fast one, where this is not given",
        True,
        "float32,float16,float16_weights,bfloat16",
    ),
    "session.matrix_unit": ConfigKey(
        "auto",
        "what multiplies pairs of bfloat16 (session.arithmetic) and bytes: 'auto' (AMX; of bfloat16 AVX512-BF16 where that is "
        "fast), 'none' (neither), 'amx', 'avx512_bf16', or 'amx_emulated' (AMX in plain code, slow: for tests)",
        True,
        "auto,none,amx,avx512_bf16,amx_emulated",
    ),
    "session.schedule_budget_ms": ConfigKey(
        "0",
        "milliseconds for timing the schedules of the heaviest products and convolutions, once for each machine; 0: estimates",
        True,
        "int",
    ),
    "session.disable_winograd": _flag("0", "3x3 convolutions by direct sums only: slower, and rounded less", True),
    "session.disable_strassen": _flag(
        "0", "products by weights with all their multiplications: slower on some CPUs, and rounded less", True
    ),
    "session.disable_qdq_constant_folding": _flag("0", "keep DequantizeLinear of constants"),
    "session.disable_double_qdq_remover": _flag("0", "keep repeated quantize/dequantize pairs"),
    "session.enable_quant_qdq_cleanup": _flag("0", "drop quantize/dequantize pairs that are left"),
    "optimization.enable_gelu_approximation": _flag("0", "Gelu through tanh"),
    "optimization.enable_cast_chain_elimination": _flag("0", "drop Casts that may lose precision"),
    "optimization.constant_folding_max_output_size_in_bytes": _int("1073741824", "largest folded constant"),
    "optimization.minimal_build_optimizations": _text("for minimal builds"),
    "session.graph_optimizations_loop_level": _int("1", "repeat optimisation levels"),
    "session.disable_aot_function_inlining": _flag("0", "keep model-local functions"),
    "session.use_device_allocator_for_initializers": _flag("0", "weights outside the arena"),
    "session.inter_op.allow_spinning": _flag("1", "spinning between parallel nodes"),
    "session.intra_op.spin_duration_us": ConfigKey("-1", "how long waiting threads spin; -1: a millisecond", True, "int"),
    "session.inter_op.spin_duration_us": _int("-1", "how long threads spin"),
    "session.intra_op.spin_backoff_max": _int("1", "pauses between spins"),
    "session.inter_op.spin_backoff_max": _int("1", "pauses between spins"),
    "session.force_spinning_stop": _flag("0", "stop spinning when no run is going on"),
    "session.dynamic_block_base": _int("0", "work stealing block size"),
    "session.intra_op_thread_affinities": _text("cores of each thread but the caller's, from 1: '1,2;3-4'", effect=True),
    "session.use_ort_model_bytes_directly": _flag("0", ".ort models"),
    "session.use_ort_model_bytes_for_initializers": _flag("0", ".ort models"),
    "session.use_memory_mapped_ort_model": _flag("0", ".ort models"),
    "session.strict_shape_type_inference": _flag("0", "inference is always strict"),
    "session.allow_released_opsets_only": _flag("1", "released operator sets"),
    "session.optimized_model_external_initializers_file_name": _text("weights file beside the optimised model", effect=True),
    "session.optimized_model_external_initializers_min_size_in_bytes": _int("1024", "smallest external weight", True),
    "session.save_external_prepacked_constant_initializers": _flag("0", "prepacked weights in the optimised model"),
    "session.collect_node_memory_stats_to_file": _text("memory statistics"),
    "session.resource_cuda_partitioning_settings": _text("memory budget of CUDA"),
    "session.layer_assignment_settings": _text("placement by layer annotation"),
    "session.name_based_layer_assignment": _text("placement by node name: 'cpu(PART,=NAME); gpu(PART)'", effect=True),
    "session.max_shape_override": _text("shapes to measure with: 'x:[1,3,224,224];ids:[1,128]'", effect=True),
    "session.disable_model_compile": _flag("0", "refuse models that have to be compiled here", True),
    "session.fail_on_suboptimal_compiled_model": _flag(
        "0", "refuse compiled models that would run faster if compiled here", True
    ),
    "session.trust_compiled_model": _flag("0", "load compiled models of others: their machine code runs as you", True),
    "session.qdq_matmulnbits_accuracy_level": _int("4", "MatMulNBits accuracy"),
    "session.qdq_matmulnbits_block_size": _int("32", "MatMulNBits block size"),
    "session.enable_dq_matmulnbits_fusion": _flag("0", "DequantizeLinear + MatMul"),
    "session.x64quantprecision": _flag("0", "8-bit products without saturation"),
    "session.qdqisint8allowed": _flag("0", "int8 activations"),
    "session.debug_layout_transformation": _flag("0", "write models around layout changes"),
    "session.node_partition_config_file": _text("streams of nodes"),
    "mlas.enable_gemm_fastmath_arm64_bfloat16": _flag("0", "bfloat16 products on ARM64"),
    "mlas.use_lut_gemm": _flag("0", "table look-up products"),
    "mlas.disable_kleidiai": _flag("0", "KleidiAI kernels"),
    "ep.context_enable": _flag("0", "write a compiled model (EPContext nodes) when the session is made", True),
    "ep.context_file_path": _text(
        "where: by default NAME_ctx.onnx; for a compiled model in bytes, where its files are", effect=True
    ),
    "ep.context_embed_mode": _flag("0", "compiled parts inside the model, not in files beside it", True),
    "ep.context_node_name_prefix": _text("begins the names of EPContext nodes", effect=True),
    "ep.share_ep_contexts": _flag("0", "between sessions"),
    "ep.stop_share_ep_contexts": _flag("0", "between sessions"),
    "ep.context_model_external_initializers_file_name": _text("weights file of a compiled model", effect=True),
    "ep.enable_weightless": _flag("0", "compiled parts of plugins without weights that lie in files: as mode 1", True),
    "ep.enable_weightless_mode": _text(
        "compiled parts of plugins without weights: 0, 1 (those that lie in files) or 2 (all)", effect=True
    ),
    "ep.context_source_model_path": _text("the original model, for plugins whose compiled parts have no weights", effect=True),
    "ep.nnapi.partitioning_stop_ops": _text(
        "operators, separated by commas, that NNAPI is not given, nor what depends on them; not set: NonMaxSuppression",
        effect=True,
    ),
    "ep.dml.disable_graph_fusion": _flag("0", "DirectML"),
    "ep.dml.enable_graph_serialization": _flag("0", "DirectML"),
    "ep.dml.enable_graph_capture": _flag("0", "DirectML"),
    "ep.dml.enable_cpu_sync_spinning": _flag("0", "DirectML"),
    "ep.dml.disable_memory_arena": _flag("0", "DirectML"),
}

RUN_KEYS: dict[str, ConfigKey] = {
    "memory.enable_memory_arena_shrinkage": _text(
        "devices whose memory for intermediate tensors is freed after the run: 'cpu:0;gpu:0'", effect=True
    ),
    "disable_synchronize_execution_providers": _flag("0", "do not wait for devices at the end of the run"),
    "gpu_graph_id": _int("0", "-1: this run starts launches one by one, whatever graphs there are", effect=True),
    "qnn.htp_perf_mode": _text("Qualcomm"),
    "qnn.htp_perf_mode_post_run": _text("Qualcomm"),
    "qnn.rpc_control_latency": _text("Qualcomm"),
    "qnn.lora_config": _text("Qualcomm"),
}

_FAMILIES = ("session.", "untrusted.", "optimization.", "partition.", "mlas.", "ep.", "memory.", "qnn.")
_LIMIT = 1024  # characters of a key, as in onnxruntime


def check_entry(key: str, value: str, known: dict[str, ConfigKey], what: str) -> None:
    """Raise where `key` cannot be meant or `value` does not fit it.

    Keys "ep.<provider's name>.<option>" are the providers' own. A key that is neither of a known family nor near a known key
    is a program's own: it is kept, with a warning in the log.

    Raises:
        InvalidArgument: not text, empty, or a value that does not fit.
        UnknownOption: the key does not exist; names the nearest.
    """
    if not isinstance(key, str) or not isinstance(value, str):
        raise WrongType(f"{what} configuration entries are text: got {key!r} = {value!r}; write {str(key)!r}, {str(value)!r}")
    if not key or len(key) > _LIMIT:
        raise InvalidArgument(f"a {what} configuration entry needs a key: Config key is empty or longer than {_LIMIT}: {key!r}")
    entry = known.get(key)
    if entry is not None:
        entry.check(key, value)
        return
    names = [*known, *PROPERTY_KEYS] if known is SESSION_KEYS else list(known)
    if known is SESSION_KEYS and key.startswith("ep.") and "executionprovider." in key.lower():
        return
    import difflib

    told = nearest(key, names, "compatibility.md#configuration-entries")
    meant = key.startswith(_FAMILIES) or difflib.get_close_matches(key, names, n=1, cutoff=0.75)
    if meant and not as_onnxruntime():
        raise UnknownOption(f"no {what} configuration entry {key!r}; {told}")
    logger.warning("%s configuration entry %r is not known: it is kept and has no effect; %s", what, key, told)


WORKLOAD, EFFICIENT = "ep.dynamic.workload_type", "Efficient"
DYNAMIC_KEYS: dict[str, tuple[str, ...]] = {
    WORKLOAD: ("Default", EFFICIENT),
    "ep.dynamic.qnn_htp_performance_mode": (),
}
"""Options that may change between runs, with their values where these are a fixed list."""


def check_dynamic_option(key: str, value: str) -> None:
    """Raise where an option of `set_ep_dynamic_options` or its value does not exist.

    Raises:
        UnknownOption: the key does not exist.
        InvalidArgument: not one of its values.
    """
    if key not in DYNAMIC_KEYS:
        raise UnknownOption(f"no dynamic option {key!r}; {nearest(str(key), DYNAMIC_KEYS)}")
    if DYNAMIC_KEYS[key] and value not in DYNAMIC_KEYS[key]:
        raise InvalidArgument(f"dynamic option {key!r}: {value!r} is not a value; {nearest(str(value), DYNAMIC_KEYS[key])}")


OPTIMIZERS_ELSEWHERE = frozenset(
    """
    AttentionFusion BiasDropoutFusion BiasGeluFusion BiasSoftmaxFusion BitmaskDropoutReplacement CastChainElimination
    CastElimination CastFloat16Transformer ClipQuantFusion ClipQuantRewrite CommonSubexpressionElimination
    ConcatSliceElimination ConstantFolding ConstantSharing ConvActivationFusion ConvAddActivationFusion ConvAddFusion
    ConvBNFusion ConvMulFusion DivMulFusion DoubleQDQPairsRemover DynamicQuantizeMatMulFusion EliminateDropout
    EliminateIdentity EliminateSlice EmbedLayerNormFusion EnsureUniqueDQForNodeUnit ExpandElimination FastGeluFusion
    FreeDimensionOverrideTransformer FuseConvActivation FuseInitializersTransformer FuseReluClip GatherSliceToSplitFusion
    GatherToSliceFusion GatherToSplitFusion GeluApproximation GeluFusion GeluFusionL1 GeluFusionL2 GemmActivationFusion
    GemmSumFusion GemmTransposeFusion GroupQueryAttentionFusion IdenticalChildrenConsolidation InsertCastTransformer
    IsInfReduceSumFusion LabelEncoderFusion LayerNormFusion LayerNormFusionL1 LayerNormFusionL2
    Level1_RuleBasedTransformer Level2_RuleBasedTransformer MatMulActivationFusion MatMulAddFusion MatMulBNFusion
    MatMulIntegerToFloatFusion MatMulNBitsFusion MatMulScaleFusion MatMul_BatchNormalization_Fusion MatmulTransposeFusion
    MemcpyTransformer NchwcTransformer NhwcTransformer NoopElimination NotWhereFusion PadFusion
    Pad_Fusion PreShapeNodeElimination PropagateCastOps QDQFinalCleanupTransformer QDQPropagationTransformer
    QDQS8ToU8Transformer QDQSelectorActionTransformer QuickGeluFusion ReluClipFusion ReluQuantFusion ReluQuantRewrite
    RemoveDuplicateCastTransformer ReshapeFusion RocmBlasAltImpl ScaledSumFusion ShapeOptimizer
    SimplifiedLayerNormFusion SkipLayerNormFusion TransposeOptimizer UnsqueezeElimination
    WeightBiasQuantization WhereDummyDq
    """.split()
)
"""Names of onnxruntime's optimizers: switching one off has no effect here."""
