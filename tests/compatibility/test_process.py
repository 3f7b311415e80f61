"""Functions of the module, its submodules by onnxruntime's paths, and `install_as`."""

from __future__ import annotations

import importlib
import importlib.metadata
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import intarsia as ort
from intarsia.capi.onnxruntime_inference_collection import check_and_normalize_provider_args, get_ort_device_type
from intarsia.compat.not_provided import LEFT_OUT, METHODS_LEFT_OUT, MODULES_LEFT_OUT, ModuleLeftOut
from intarsia.errors import InvalidArgument, NotImplemented, WrongType


def python(code: str) -> str:
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env={"PYTHONPATH": str(Path(ort.__file__).parents[1]), "HOME": str(Path.home())},
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


class TestFunctions:
    def test_information(self, capsys) -> None:
        assert "Build Info" in ort.get_build_info()
        assert ort.get_device() in ("CPU", "GPU")
        assert ort.get_all_providers()[-1] == "CPUExecutionProvider"
        assert "CPUExecutionProvider" in ort.get_available_providers()
        assert (ort.package_name, ort.version, ort.cuda_version) == ("intarsia", ort.__version__, "")
        assert ort.has_collective_ops() is False
        ort.print_debug_info()
        assert "CPUExecutionProvider" in capsys.readouterr().out

    def test_without_effect(self) -> None:
        ort.enable_telemetry_events()
        ort.disable_telemetry_events()
        ort.preload_dlls(cuda=True, cudnn=True, msvc=True, directory=None)

    def test_seed(self, make_session) -> None:
        session = make_session("g (float[3] x) => (float[3] y) { y = RandomUniformLike(x) }")
        feed = {"x": np.zeros(3, np.float32)}
        ort.set_seed(7)
        first = [session.run(None, feed)[0] for _ in range(2)]
        ort.set_seed(7)
        second = [session.run(None, feed)[0] for _ in range(2)]
        np.testing.assert_array_equal(first, second)
        assert not np.array_equal(*first)
        with pytest.raises(WrongType, match="set_seed: expected an integer, got 'x'"):
            ort.set_seed("x")  # type: ignore[arg-type]

    def test_thread_counts(self, make_session, monkeypatch: pytest.MonkeyPatch) -> None:
        from intarsia.runtime.executor import get_pool

        monkeypatch.setattr(
            "intarsia.session.process_settings._pools_are_global", False
        )  # and so it is again for the tests behind this one
        try:
            ort.set_global_thread_pool_sizes(3, 1)
            assert get_pool().num_threads == 3
            assert get_pool(2).num_threads == 2
        finally:
            ort.set_global_thread_pool_sizes()
        with pytest.raises(InvalidArgument, match="expected intra_op_num_threads from 0, got -1"):
            ort.set_global_thread_pool_sizes(-1)
        with pytest.raises(InvalidArgument, match="a thread count is 0"):
            ort.set_global_thread_pool_sizes(100_000)

    def test_copy_tensors(self) -> None:
        source = ort.OrtValue.ortvalue_from_numpy(np.float32([1, 2]))
        target = ort.OrtValue.ortvalue_from_shape_and_type([2], np.float32)
        ort.copy_tensors([source], [target], None)
        assert target.numpy().tolist() == [1, 2]
        with pytest.raises(InvalidArgument, match="copy_tensors: expected lists of one length, got 1 and 0"):
            ort.copy_tensors([source], [])


class TestPaths:
    @pytest.mark.parametrize("module", ["_pybind_state", "onnxruntime_pybind11_state", "onnxruntime_inference_collection"])
    def test_every_name_exists(self, module: str) -> None:
        found = importlib.import_module(f"intarsia.capi.{module}")
        assert getattr(ort.capi, module) is found
        for name in found.__all__:
            assert getattr(found, name) is not None
        assert set(found.__all__) <= set(dir(found))
        scope: dict[str, object] = {}
        exec(f"from intarsia.capi.{module} import *", scope)
        assert set(found.__all__) <= scope.keys()

    def test_exceptions(self) -> None:
        from intarsia.capi import onnxruntime_pybind11_state as state

        for (
            name
        ) in "EPFail Fail InvalidArgument InvalidGraph InvalidProtobuf ModelLoaded NoModel NoSuchFile NotImplemented".split():
            assert issubclass(getattr(state, name), state.RuntimeException)
            assert issubclass(getattr(state, name), RuntimeError)
        with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
            state.Nothing  # noqa: B018

    def test_the_small_modules(self) -> None:
        from intarsia.capi import build_and_package_info, onnxruntime_validation

        assert build_and_package_info.__version__ == ort.__version__
        onnxruntime_validation.check_distro_info()
        onnxruntime_validation.check_training_module()
        with pytest.raises(AttributeError, match=r"module 'intarsia.capi' has no attribute 'nothing'"):
            ort.capi.nothing  # noqa: B018

    @pytest.mark.parametrize("name", sorted(MODULES_LEFT_OUT))
    def test_subpackages_that_are_left_out(self, name: str) -> None:
        with pytest.raises(ModuleLeftOut, match=rf"intarsia.{name} does not exist: .*install_as"):
            importlib.import_module(f"intarsia.{name}")
        assert not hasattr(ort, name)
        with pytest.raises(AttributeError, match=rf"intarsia.{name} does not exist"):
            getattr(ort, name)
        assert issubclass(ModuleLeftOut, ImportError)
        assert issubclass(ModuleLeftOut, NotImplemented)

    @pytest.mark.parametrize("name", sorted(LEFT_OUT))
    def test_names_that_are_left_out(self, name: str) -> None:
        with pytest.raises(AttributeError, match=f"no attribute '{name}': "):
            getattr(ort, name)

    def test_methods_that_are_left_out(self) -> None:
        for name in METHODS_LEFT_OUT:
            kind, method = name.split(".")
            assert callable(getattr(getattr(ort, kind), method))

    def test_device_types(self) -> None:
        assert [get_ort_device_type(n) for n in ("cpu", "cuda", "npu")] == [0, 1, 3]


class TestProviderArguments:
    NAMES = ("a", "b", "c")

    @pytest.mark.parametrize(
        ("providers", "options", "expected"),
        [
            (None, None, ([], [])),
            (None, [{}], ([], [])),
            ([], None, ([], [])),
            (["a"], None, (["a"], [{}])),
            (("a", "b"), None, (["a", "b"], [{}, {}])),
            ([("a", {1: 2}), "b"], None, (["a", "b"], [{"1": "2"}, {}])),
            (["a", "b"], [{1: 2}, {}], (["a", "b"], [{"1": "2"}, {}])),
        ],
    )
    def test_both_forms(self, providers, options, expected) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert check_and_normalize_provider_args(providers, options, self.NAMES) == expected

    def test_warnings(self) -> None:
        with pytest.warns(UserWarning, match="Duplicate provider 'a' encountered, ignoring."):
            assert check_and_normalize_provider_args(["a", ("a", {1: 2})], None, self.NAMES) == (["a"], [{}])
        with pytest.warns(UserWarning, match="Specified provider 'd' is not in available provider names"):
            assert check_and_normalize_provider_args(["d"], None, self.NAMES) == (["d"], [{}])

    @pytest.mark.parametrize(
        ("providers", "options", "message"),
        [
            (["a", "b"], [{}], "should be the same length"),
            ([("a", {})], [{}], "Only string values for 'providers' are supported"),
            (["a"], [3], "'provider_options' values must be dicts"),
            (["a"], 3, "'provider_options' should be a sequence"),
            ([3], None, "must be either strings or"),
            ([("a",)], None, "must be either strings or"),
            ("a", None, "'providers' should be a sequence, got 'a'"),
        ],
    )
    def test_errors(self, providers, options, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            check_and_normalize_provider_args(providers, options, self.NAMES)


def test_an_option_that_programs_give_the_cpu_provider(make_session) -> None:
    session = make_session(providers=[("CPUExecutionProvider", {"arena_extend_strategy": "kSameAsRequested"})])
    assert session.get_provider_options() == {"CPUExecutionProvider": {"arena_extend_strategy": "kSameAsRequested"}}
    assert make_session().get_provider_options() == {"CPUExecutionProvider": {}}
    with pytest.raises(
        InvalidArgument,
        match=r"'kSame' is not a valid value; did you mean 'kSameAsRequested'\? \(valid: 'kNextPowerOfTwo', 'kSameAsRequested'",
    ):
        make_session(providers=[("CPUExecutionProvider", {"arena_extend_strategy": "kSame"})])


class TestInstall:
    def test_the_alias_and_its_submodules(self) -> None:
        code = """
import intarsia
intarsia.install_as("onnxruntime")
intarsia.install_as("onnxruntime")
import onnxruntime, onnxruntime as ort, importlib, importlib.metadata
from onnxruntime import InferenceSession, SessionOptions
from onnxruntime.capi.onnxruntime_pybind11_state import Fail
from onnxruntime.capi._pybind_state import *
import onnxruntime.backend, onnxruntime.datasets
assert InferenceSession is not intarsia.InferenceSession, "the low-level class comes with the star"
assert ort.InferenceSession is intarsia.InferenceSession
assert Fail is intarsia.Fail
import intarsia.backend
assert onnxruntime.backend is intarsia.backend
assert intarsia.backend.__spec__.name == intarsia.backend.__name__ == "intarsia.backend"
assert ort.__name__ == "onnxruntime" and ort.__version__ == importlib.metadata.version("onnxruntime")
assert intarsia.__version__ != ort.__version__ or True
session = ort.InferenceSession(ort.datasets.get_example("mul_1.onnx"))
import numpy
print(session.run(None, {"X": numpy.ones((3, 2), numpy.float32)})[0].tolist(), type(session).__module__)
try:
    import onnxruntime.nothing
except ModuleNotFoundError as error:
    print(error.name)
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    print(ort.InferenceSession(ort.datasets.get_example("mul_1.onnx"), providers=["CUDAExecutionProvider"]).get_providers())
assert "CUDAExecutionProvider" in str(caught[0].message)
intarsia.uninstall("onnxruntime")
import sys
print([m for m in sys.modules if m.startswith("onnxruntime")])
"""
        shown = python(code).splitlines()
        assert shown == [
            "[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]] intarsia.session.inference_session",
            "onnxruntime.nothing",
            "['CPUExecutionProvider']",
            "[]",
        ]

    def test_onnxruntimes_own_tools_run_over_it(self) -> None:
        pytest.importorskip("onnxruntime", reason="the package whose Python tools are used")
        code = """
import intarsia
intarsia.install_as("onnxruntime")
from onnxruntime.transformers import optimizer
from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference
import onnxruntime, sys
print(onnxruntime.InferenceSession.__module__, "onnxruntime.capi.onnxruntime_pybind11_state" in str(sys.modules.get("x")))
"""
        assert python(code).split() == ["intarsia.session.inference_session", "False"]

    def test_onnxruntimes_own_tools_are_attributes_of_the_alias(self) -> None:
        pytest.importorskip("onnxruntime", reason="the package whose Python tools are used")
        code = """
import intarsia
intarsia.install_as("onnxruntime")
from onnxruntime import quantization, transformers
import onnxruntime, onnxruntime.tools
print(quantization.quantize_dynamic.__module__, hasattr(onnxruntime, "transformers"), onnxruntime.tools.__name__)
"""
        assert python(code).split() == ["intarsia.quantization.quantize", "True", "onnxruntime.tools"]

    def test_without_onnxruntime_its_tools_are_missing(self) -> None:
        code = """
import intarsia
intarsia.install_as("another_runtime")
import another_runtime
print(hasattr(another_runtime, "transformers"))
try:
    import another_runtime.transformers
except ImportError as error:
    print(type(error).__name__, error)
from another_runtime.tools.symbolic_shape_infer import SymbolicShapeInference
print(SymbolicShapeInference.__module__)
"""
        shown = python(code)
        assert shown.startswith("False")
        assert shown.split()[-1] == "intarsia.tools.symbolic_shape_infer"
        assert "ModuleLeftOut intarsia.transformers does not exist" in shown

    def test_errors(self) -> None:
        with pytest.raises(InvalidArgument, match=r"expected the name of a top-level module such as 'onnxruntime', got 'a.b'"):
            ort.install_as("a.b")
        with pytest.raises(ort.Fail, match=r"numpy has been imported already, from .*; call install_as before that"):
            ort.install_as("numpy")
        with pytest.raises(InvalidArgument, match=r"uninstall: install_as\('other'\) was not called"):
            ort.uninstall("other")
