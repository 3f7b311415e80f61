"""`SessionOptions`, `RunOptions`, their configuration entries, enumerations."""

from __future__ import annotations

import numpy as np
import pytest

import intarsia as ort
from intarsia.errors import InvalidArgument, UnknownOption, nearest
from intarsia.options.config_keys import PROPERTY_KEYS, RUN_KEYS, SESSION_KEYS


class TestSessionOptions:
    def test_defaults_are_onnxruntimes(self) -> None:
        reference = pytest.importorskip("onnxruntime", reason="compares with onnxruntime").SessionOptions()
        options = ort.SessionOptions()
        for name in ort.SessionOptions.PROPERTIES:
            expected, found = getattr(reference, name, None), getattr(options, name)
            if expected is not None:
                assert (getattr(found, "name", found)) == (getattr(expected, "name", expected)), name

    def test_every_property_of_onnxruntime_exists(self) -> None:
        module = pytest.importorskip("onnxruntime", reason="compares with onnxruntime")
        theirs = {n for n, v in vars(module.SessionOptions).items() if isinstance(v, property)}
        assert theirs <= set(ort.SessionOptions.PROPERTIES)

    def test_set_and_get(self) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 4
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
        assert repr(options).startswith("SessionOptions(execution_mode=")
        assert options.intra_op_num_threads == 4

    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            ("intra_op_num_threads", "4", r"SessionOptions.intra_op_num_threads: expected int, got '4'"),
            ("intra_op_num_threads", True, "expected int, got True"),
            ("intra_op_num_threads", -1, "SessionOptions.intra_op_num_threads: expected an integer from 0, got -1"),
            ("log_severity_level", 5, "expected an integer from -1 to 4, got 5"),
            ("enable_profiling", 2, "SessionOptions.enable_profiling: expected bool, got 2"),
            ("graph_optimization_level", 99, r"expected GraphOptimizationLevel.ORT_DISABLE_ALL, .*, got 99"),
        ],
    )
    def test_values_of_other_types(self, name: str, value: object, message: str) -> None:
        with pytest.raises(InvalidArgument, match=message):
            setattr(ort.SessionOptions(), name, value)

    @pytest.mark.parametrize("value", [1, 0, np.True_, np.False_])
    def test_true_and_false_as_numbers(self, value: object) -> None:
        options, run = ort.SessionOptions(), ort.RunOptions()
        options.enable_profiling = run.terminate = value  # type: ignore[assignment]
        assert options.enable_profiling is run.terminate is bool(value)

    def test_unknown_property_names_the_nearest(self) -> None:
        options = ort.SessionOptions()
        with pytest.raises(
            AttributeError, match="SessionOptions has no property 'intra_op_threads'; did you mean 'intra_op_num_threads'"
        ):
            options.intra_op_threads = 4  # type: ignore[attr-defined]
        with pytest.raises(AttributeError, match="SessionOptions has no attribute 'intra_op_threads'; did you mean"):
            options.intra_op_threads  # type: ignore[attr-defined] # noqa: B018

    def test_dimension_overrides(self) -> None:
        options = ort.SessionOptions()
        with pytest.raises(InvalidArgument, match="a dimension override takes a name and a size from 0, got 'N' and -1"):
            options.add_free_dimension_override_by_name("N", -1)
        with pytest.raises(InvalidArgument, match="takes a name and a size"):
            options.add_free_dimension_override_by_denotation("DATA_BATCH", True)

    def test_providers(self) -> None:
        options = ort.SessionOptions()
        assert not options.has_providers()
        options.add_provider("CPUExecutionProvider", {})
        assert options.has_providers()

    def test_external_initializers(self) -> None:
        options = ort.SessionOptions()
        options.add_external_initializers(["a", "b"], [1, 2])
        assert options.initializers == {"a": 1, "b": 2}
        with pytest.raises(InvalidArgument, match="add_external_initializers: expected as many values as names, got 1 and 2"):
            options.add_external_initializers(["a"], [1, 2])


class TestEntries:
    def test_set_and_get(self) -> None:
        options = ort.SessionOptions()
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
        assert options.config("session.intra_op.allow_spinning") == "0"
        assert options.config("session.disable_cpu_ep_fallback") == "0"
        with pytest.raises(UnknownOption, match=r"SessionOptions does not have configuration with key: session.log_id"):
            options.get_session_config_entry("session.log_id")

    def test_unknown_key_names_the_nearest(self) -> None:
        with pytest.raises(
            UnknownOption,
            match=r"no session configuration entry 'session.disable_cpu_fallback'; did you mean 'session.disable_cpu_ep",
        ):
            ort.SessionOptions().add_session_config_entry("session.disable_cpu_fallback", "1")

    @pytest.mark.parametrize(
        ("key", "value", "message"),
        [
            (
                "session.disable_prepacking",
                "yes",
                "configuration entry 'session.disable_prepacking': expected '0' or '1', got 'yes'",
            ),
            ("session.dynamic_block_base", "many", "expected an integer in text, got 'many'"),
            (
                "session.disable_prepacking",
                1,
                "session configuration entries are text: got 'session.disable_prepacking' = 1; write",
            ),
            ("", "1", "a session configuration entry needs a key: Config key is empty or longer than 1024: ''"),
            ("session.enable_profiling", "yes", "'session.enable_profiling': expected '0' or '1', got 'yes'"),
            ("session.intra_op_num_threads", "two", "expected an integer in text, got 'two'"),
            ("session.graph_optimization_level", "enable", "'enable' is not a value; did you mean 'enable_"),
        ],
    )
    def test_values_that_do_not_fit(self, key: str, value: object, message: str) -> None:
        with pytest.raises(InvalidArgument, match=message):
            ort.SessionOptions().add_session_config_entry(key, value)  # type: ignore[arg-type]

    def test_text_twins_of_properties(self) -> None:
        options = ort.SessionOptions()
        options.add_session_config_entry("session.intra_op_num_threads", "3")
        options.add_session_config_entry("session.graph_optimization_level", "disable_all")
        options.add_session_config_entry("session.enable_profiling", "1")
        options.add_session_config_entry("session.log_id", "me")
        assert (options.intra_op_num_threads, options.enable_profiling, options.logid) == (3, True, "me")
        assert options.graph_optimization_level is ort.GraphOptimizationLevel.ORT_DISABLE_ALL

    def test_providers_own_keys_pass(self) -> None:
        ort.SessionOptions().add_session_config_entry("ep.webgpuexecutionprovider.preferredLayout", "NCHW")

    def test_tables_are_sound(self) -> None:
        for table in (SESSION_KEYS, RUN_KEYS):
            for key, entry in table.items():
                assert entry.doc
                if entry.default:
                    entry.check(key, entry.default)
        assert set(PROPERTY_KEYS.values()) <= set(ort.SessionOptions.PROPERTIES)


class TestRunOptions:
    def test_defaults_and_entries(self) -> None:
        options = ort.RunOptions()
        assert (options.terminate, options.only_execute_path_to_fetches, options.log_severity_level) == (False, False, -1)
        options.add_run_config_entry("gpu_graph_id", "-1")
        assert options.get_run_config_entry("gpu_graph_id") == "-1"
        with pytest.raises(UnknownOption, match=r"RunOptions does not have configuration with key: qnn.lora_config"):
            options.get_run_config_entry("qnn.lora_config")
        with pytest.raises(UnknownOption, match="no run configuration entry 'gpu_graph_ids'; did you mean 'gpu_graph_id'"):
            options.add_run_config_entry("gpu_graph_ids", "1")
        with pytest.raises(AttributeError, match="RunOptions has no property 'terminated'; did you mean 'terminate'"):
            options.terminated = True  # type: ignore[attr-defined]


def test_enumerations_have_onnxruntimes_numbers() -> None:
    assert {int(e): e.name for e in ort.GraphOptimizationLevel} == {
        0: "ORT_DISABLE_ALL", 1: "ORT_ENABLE_BASIC", 2: "ORT_ENABLE_EXTENDED", 3: "ORT_ENABLE_LAYOUT", 99: "ORT_ENABLE_ALL",
    }  # fmt: skip
    assert [int(e) for e in ort.ExecutionMode] == [0, 1]
    assert [int(e) for e in ort.ExecutionOrder] == [0, 1, 2]


def test_short_names_are_recognised() -> None:
    assert nearest("cuda", ["CPUExecutionProvider", "CUDAExecutionProvider"]).startswith(
        "did you mean 'CUDAExecutionProvider'?"
    )
    assert nearest("OpenVINO", ["OpenVINOExecutionProvider"]).startswith("did you mean 'OpenVINOExecutionProvider'?")
    assert nearest("", ["CPUExecutionProvider"]) == "valid: 'CPUExecutionProvider'"
