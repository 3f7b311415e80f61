"""cuBLASLt's and cuDNN's bindings against the libraries themselves: their headers, and what they do without a GPU."""

from __future__ import annotations

import ctypes
import functools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import fake_cublaslt
import fake_cudnn
import pytest
import real_cudnn

from intarsia.codegen.clike.vendor_libraries.calls import MatrixProduct
from intarsia.codegen.clike.vendor_libraries.strided_views import View
from intarsia.device import cublaslt, cudnn, nvidia_libraries
from intarsia.device.cublaslt import CublasLt
from intarsia.device.libraries import NotOfferedError
from intarsia.device.nvidia_libraries import LibraryMissingError, load
from intarsia.graph.dtypes import DType

BLAS, DNN = "nvidia-cublas (444 MB)", "nvidia-cudnn-cu13 (517 MB)"


@functools.cache
def header(name: str, package: str) -> str:
    """The header's text; a test without the package is skipped."""
    for folder in nvidia_libraries.folders():
        path = Path(folder).parent / "include" / name
        if path.exists():
            return path.read_text(encoding="utf-8", errors="replace")
    return pytest.skip(f"{name} is in the package {package}, which is not installed")


def enumerators(text: str) -> dict[str, int]:
    """All enumerators with values of their own."""
    found: dict[str, int] = {}
    bare = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)
    for name, value in re.findall(r"\b(CU\w+)(?:\s+CUDNN_DEPRECATED_ENUM)?\s*=\s*([^,}]+?)\s*(?=[,}])", bare):
        try:
            found[name] = eval(value, {"__builtins__": {}}, dict(found))
        except (NameError, SyntaxError, TypeError):
            continue
    return found


def prototypes(text: str) -> dict[str, list[str]]:
    """Functions: the types of their arguments, as C has them."""
    bare = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.DOTALL)
    found = {}
    for name, arguments in re.findall(r"(?:CUBLASWINAPI|CUDNNWINAPI)\s+(\w+)\(([^;{]*?)\)\s*;", bare):
        parts = [" ".join(a.split()) for a in arguments.split(",")]
        found[name] = [] if parts == ["void"] else parts
    return found


def plain(argument: str) -> str:
    """What a C argument is to the machine."""
    handles = "cublasLtHandle_t cublasLtMatmulDesc_t cublasLtMatrixLayout_t cublasLtMatmulPreference_t cudnnHandle_t".split()
    if "*" in argument or "[" in argument:
        return "pointer"
    kind = re.sub(r"\bconst\b", "", argument).split()[0]
    if kind in (*handles, "cudaStream_t", "cudnnBackendDescriptor_t"):
        return "pointer"
    return {"size_t": "u64", "uint64_t": "u64", "int64_t": "i64"}.get(kind, "int")


def of_ctypes(kind: Any) -> str:
    if kind in (ctypes.c_void_p, ctypes.c_char_p) or issubclass(kind, ctypes._Pointer):
        return "pointer"
    if kind in (ctypes.c_size_t, ctypes.c_uint64):
        return "u64"
    return "i64" if kind is ctypes.c_int64 else "int"


def enums(module: Any) -> list[Any]:
    from enum import IntEnum

    found = [v for v in vars(module).values() if isinstance(v, type) and issubclass(v, IntEnum)]
    return [v for v in found if v.__module__ == module.__name__]


@pytest.mark.parametrize(
    ("module", "files", "package"),
    [(cublaslt, ("cublasLt.h", "cublas_api.h"), BLAS), (cudnn, ("cudnn_graph.h",), DNN)],
    ids=["cublaslt", "cudnn"],
)  # fmt: skip
def test_numbers_and_functions_are_the_headers(module: Any, files: tuple[str, ...], package: str) -> None:
    text = "\n".join(header(name, package) for name in files)
    known, functions = enumerators(text), prototypes(text)
    for kind in enums(module):
        for member in kind:
            if member.name.startswith("CUDA_R_"):
                continue  # of the runtime's library_types.h, see below
            assert known[member.name] == member.value, member
    for name, (result, arguments) in module.SIGNATURES.items():
        assert [plain(a) for a in functions[name]] == [of_ctypes(a) for a in arguments], name
        before = text[: re.search(rf"\b{name}\(", text).start()].split()[-2:]  # type: ignore[union-attr]
        returned = " ".join(before)
        if result is None:
            assert "void" in returned
        else:
            assert (result is ctypes.c_size_t) == ("size_t" in returned) and (result is ctypes.c_char_p) == (
                "char" in returned
            ), name


def test_the_imitations_know_no_other_numbers() -> None:
    known = enumerators(header("cublasLt.h", BLAS))
    epilogues = {v for n, v in known.items() if n.startswith("CUBLASLT_EPILOGUE_")}
    assert epilogues >= fake_cublaslt.EPILOGUES
    documented = dict(re.findall(r"- (CUDNN_ATTR_\w+) \((CUDNN_TYPE_\w+)", header("cudnn_graph.h", DNN)))
    types = {a.name: t.name for known_here in fake_cudnn.ATTRIBUTES.values() for a, (t, _) in known_here.items()}
    both = types.keys() & documented.keys()
    assert len(both) >= 30
    differ = {n: (types[n], documented[n]) for n in both if types[n] != documented[n]}
    assert differ == {}


def test_types_of_attributes_are_the_headers() -> None:
    """The comment before each attribute of cuBLASLt says its C type."""
    text = header("cublasLt.h", BLAS)
    sizes = {"int32_t": 4, "uint32_t": 4, "uint64_t": 8, "int64_t": 8, "const void *": 8}
    for kind, known in (
        (cublaslt.ProductAttribute, fake_cublaslt.PRODUCT_SIZES), (cublaslt.LayoutAttribute, fake_cublaslt.LAYOUT_SIZES),
        (cublaslt.PreferenceAttribute, fake_cublaslt.PREFERENCE_SIZES),
    ):  # fmt: skip
        for member in kind:
            comment = text[: text.index(f"{member.name} =")].rsplit("/**", 1)[1]
            named = re.findall(r"(?:^|[\s*:])(u?int(?:32|64)_t|const void \*)", comment)
            assert known[member.value] == sizes[named[-1]], member


def test_structures_are_the_headers() -> None:
    text = header("cublasLt.h", BLAS)
    algorithm = re.search(r"typedef struct \{\s*uint64_t data\[(\d+)\];\s*\} cublasLtMatmulAlgo_t;", text)
    assert algorithm is not None
    assert ctypes.sizeof(cublaslt.Algorithm) == 8 * int(algorithm[1])
    body = text[: text.index("} cublasLtMatmulHeuristicResult_t;")].rsplit("typedef struct {", 1)[1]
    result = re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL)
    fields = [tuple(line.strip(" ;").rsplit(" ", 1)) for line in result.split("\n") if line.strip()]
    assert fields == [("cublasLtMatmulAlgo_t", "algo"), ("size_t", "workspaceSize"), ("cublasStatus_t", "state"),
                      ("float", "wavesCount"), ("int", "reserved[4]")]  # fmt: skip
    assert [name for name, _ in cublaslt.HeuristicResult._fields_] == [name.split("[")[0] for _, name in fields]
    assert ctypes.sizeof(cublaslt.HeuristicResult) == 64 + 8 + 4 + 4 + 16


def test_names_of_element_types() -> None:
    """cudaDataType is the runtime's: cuda-bindings has it."""
    runtime = pytest.importorskip("cuda.bindings.runtime", reason="cuda-bindings is not installed")
    for member in cublaslt.DataType:
        assert int(getattr(runtime.cudaDataType, member.name)) == member.value


# --- the libraries without a GPU --------------------------------------------------------------------------------------


@functools.cache
def blas() -> Any:
    """cuBLASLt, with a handle that no call is given."""
    try:
        library = load(cublaslt.WANTED, cublaslt.SIGNATURES, 13)
    except LibraryMissingError as error:
        pytest.skip(f"cuBLASLt cannot be loaded: {error}")
    made: Any = object.__new__(CublasLt)
    made.library, made.handle = library, ctypes.c_void_p()
    return made


@pytest.mark.parametrize("dtype", [DType.FLOAT, DType.FLOAT16, DType.BFLOAT16, DType.DOUBLE])
@pytest.mark.parametrize("turned", [False, True])
def test_cublaslt_takes_every_descriptor(dtype: DType, turned: bool) -> None:
    """Up to the question for an algorithm, which takes a GPU."""
    left, right = View.packed(dtype, (3, 8, 16)), View.packed(dtype, (3, 16, 24), 1 if turned else -1)
    result = View.packed(dtype, (3, 8, 24))
    call = MatrixProduct(left, right, result, result, View.packed(dtype, (24,)), 0.5, "relu")
    with pytest.raises(
        NotOfferedError, match=r"cuBLASLt has no algorithm for it: CUBLAS_STATUS_(INVALID_VALUE|NOT_INITIALIZED)"
    ):
        blas().prepared(call, True, 1 << 20)
    if dtype is DType.FLOAT:
        wide = View.packed(DType.INT32, (1, 8, 24))
        bytes_ = MatrixProduct(View.packed(DType.INT8, (1, 8, 16)), View.packed(DType.INT8, (1, 16, 24), 1), wide)
        with pytest.raises(NotOfferedError, match="cuBLASLt has no algorithm for it"):
            blas().prepared(bytes_, True, 1 << 20)


def test_cublaslt_refuses_what_is_wrong() -> None:
    made = blas().made("cublasLtMatmulDesc", cublaslt.Compute.CUBLAS_COMPUTE_32F, cublaslt.DataType.CUDA_R_32F)
    with pytest.raises(NotOfferedError, match="CUBLASLT_MATMUL_DESC_TRANSA cannot be 1: CUBLAS_STATUS_INVALID_VALUE"):
        made.set(cublaslt.ProductAttribute.CUBLASLT_MATMUL_DESC_TRANSA, ctypes.c_int64(1))
    assert blas().library.cublasLtGetStatusName(15) == b"CUBLAS_STATUS_NOT_SUPPORTED"
    assert re.fullmatch(r"1[23]\.\d+\.\d+", blas().version)


def test_without_a_gpu_cublaslt_does_not_start() -> None:
    blas()
    if os.path.exists("/dev/nvidiactl"):  # noqa: PTH110 - the driver's file
        pytest.skip("there may be a GPU here")
    with pytest.raises(LibraryMissingError, match=r"cuBLASLt 1[23]\.\d+\.\d+ does not start: CUBLAS_STATUS_NOT_INITIALIZED"):
        CublasLt(13)


STAND_IN = "cuGetErrorString cuModuleGetFunction cuModuleLoadData cuModuleUnload cuTensorMapEncodeIm2col cuTensorMapEncodeTiled"
LATER = (
    "cuLibraryLoadData cuLibraryLoadFromFile cuLibraryGetKernel cuLibraryUnload cuKernelSetAttribute cuKernelGetAttribute "
    "cuKernelGetFunction cuOccupancyMaxPotentialClusterSize cuLaunchKernel cuLaunchCooperativeKernel cuLaunchKernelEx "
    "cuGetErrorName cuCtxGetCurrent cuCtxGetLimit cuCtxPopCurrent cuCtxPushCurrent cuStreamGetCtx cuLinkCreate cuLinkAddData "
    "cuLinkComplete cuLinkDestroy cuDeviceGetCount cuDeviceGet cuInit"
)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """What cuDNN says of graphs on an H200, see real_cudnn.py."""
    header("cudnn_graph.h", DNN)
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or sys.platform != "linux":
        pytest.skip("a compiler of C on Linux makes the stand-in for NVIDIA's driver, which cuDNN loads: none is found")
    folder = tmp_path_factory.mktemp("driver")
    names = (*STAND_IN.split(), *LATER.split())
    lines = [f"int {name}(void) {{ return 100; }}" for name in names]  # CUDA_ERROR_NO_DEVICE
    lines.append("int cuDriverGetVersion(int* version) { *version = 13000; return 0; }")
    (folder / "driver.c").write_text("\n".join(lines))
    subprocess.run(
        [
            compiler,
            "-shared",
            "-fPIC",
            "-Wl,-soname,libcuda.so.1",
            "-o",
            str(folder / "libcuda.so.1"),
            str(folder / "driver.c"),
        ],
        check=True,
    )
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("LD_LIBRARY_PATH", "")]))
    environment = {**os.environ, "LD_LIBRARY_PATH": path, "PYTHONPATH": os.pathsep.join(sys.path)}
    script = Path(__file__).parents[1] / "imitations" / "real_cudnn.py"
    found = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert found.returncode == 0, found.stderr[-2000:]
    return json.loads(found.stdout.splitlines()[-1])  # type: ignore[no-any-return]


@pytest.mark.parametrize("dtype", ["float16", "float", "bfloat16"])
@pytest.mark.parametrize("layout", ["first", "last"])
@pytest.mark.parametrize("behind", ["00", "10", "10relu", "11relu"])
def test_cudnn_has_engines_for_convolutions_on_an_h200(
    answers: dict[str, list[dict[str, Any]]], dtype: str, layout: str, behind: str
) -> None:
    """Bias, addend and Relu are in one engine, on tensor cores, whatever the layout."""
    best = answers[f"{dtype} {layout} {behind}"][0]
    assert "error" not in best, best
    assert cudnn.Note.CUDNN_NUMERICAL_NOTE_TENSOR_CORE in best["notes"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", real_cudnn.ATTENTION)
def test_cudnn_compiles_attention_for_an_h200(answers: dict[str, list[dict[str, Any]]], name: str, dtype: str) -> None:
    """It gets as far as giving the machine code to the driver, which is a stand-in that takes none."""
    (best,) = answers[f"attention {name} {dtype}"]
    assert "workspace" in best or "cuLibraryLoadData returned error  (100)" in best["error"]


def test_cudnn_checks_shapes(answers: dict[str, list[dict[str, Any]]]) -> None:
    assert "CUDNN_STATUS_BAD_PARAM" in answers["wrong"][0]["error"]
    assert answers["pack"] == [{"made": True}]
