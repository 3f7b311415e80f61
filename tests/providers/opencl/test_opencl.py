"""OpenCL for real: on a driver for the host's processor where there is no GPU (Debian: pocl-opencl-icd).

The kernels are those of CUDA and HIP but for the words that a dialect replaces, so their arithmetic is proved here too.
"""

from __future__ import annotations

import os

import numpy as np
import pytest

import intarsia
from intarsia.device.opencl import missing, open_device
from intarsia.testing.cases import cases, run_case

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"no OpenCL device: {missing()}")
NAME = "OpenCLExecutionProvider"
# One of each schedule and of each way of storing elements; a driver may take seconds to compile one kernel.
SAMPLE = [
    "test_add_bcast", "test_and2d", "test_argmax_keepdims_example", "test_averagepool_2d_pads", "test_batchnorm_example",
    "test_bitshift_left_uint8", "test_cast_FLOAT_to_BFLOAT16", "test_cast_FLOAT16_to_DOUBLE", "test_clip_default_int8_min",
    "test_concat_2d_axis_1", "test_conv_with_strides_padding", "test_depthtospace_example",
    "test_div_int32_trunc", "test_equal_bcast", "test_erf", "test_gather_negative_indices", "test_gemm_all_attributes",
    "test_isnan", "test_layer_normalization_4d_axis1", "test_logsoftmax_axis_2", "test_matmul_4d", "test_max_float64",
    "test_maxpool_2d_strides", "test_mod_mixed_sign_int64", "test_onehot_with_axis", "test_pow_types_float32_int64",
    "test_quantizelinear_axis", "test_reduce_max_default_axes_keepdim_example", "test_scatternd_add",
    "test_softmax_large_number", "test_tanh", "test_top_k", "test_transpose_all_permutations_3", "test_where_long_example",
    "test_ai_onnx_ml_tree_ensemble_set_membership", "test_ai_onnx_ml_tree_ensemble_single_tree", "test_dft",
    "test_nonzero_example", "test_roialign_aligned_true", "test_stft", "test_tfidfvectorizer_tf_batch_uniandbigrams_skip5",
]  # fmt: skip


def only_here() -> intarsia.SessionOptions:
    options = intarsia.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return options


def names() -> list[str]:
    """The sample, or all node cases where INTARSIA_OPENCL_CASES is "all": an hour on a processor."""
    every = os.environ.get("INTARSIA_OPENCL_CASES") == "all"
    return sorted(n for n, c in cases().items() if c.kind == "node") if every else SAMPLE


@pytest.mark.parametrize("name", names())
def test_case(name: str) -> None:
    try:
        _, wrong = run_case(cases()[name], [NAME], only_here())
    except intarsia.NotImplemented as error:
        if name in SAMPLE:
            raise
        pytest.skip(str(error))
    assert not wrong


def model(nodes: list[object], inputs: list[object]) -> bytes:
    from onnx import helper

    graph = helper.make_graph(nodes, "g", inputs, [helper.make_empty_tensor_value_info("y")])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    data: bytes = proto.SerializeToString()
    return data


def test_values_stay_on_the_device_between_nodes() -> None:
    from onnx import helper

    nodes = [
        helper.make_node("MatMul", ["x", "x"], ["a"]), helper.make_node("Softmax", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "x"], ["y"]),
    ]  # fmt: skip
    data = model(nodes, [helper.make_tensor_value_info("x", 1, [70, 70])])
    session = intarsia.InferenceSession(data, only_here(), [NAME])
    counters = open_device().counters
    x = np.random.default_rng(0).standard_normal((70, 70)).astype(np.float32)
    session.run(None, {"x": x})
    before = counters.copies_in, counters.copies_out
    (found,) = session.run(None, {"x": x})
    assert (counters.copies_in - before[0], counters.copies_out - before[1]) == (1, 1)
    a = x.astype(np.float64) @ x
    e = np.exp(a - a.max(1, keepdims=True))
    np.testing.assert_allclose(found, (e / e.sum(1, keepdims=True)) @ x, rtol=2e-4, atol=2e-5)


def test_an_index_out_of_range_names_its_node() -> None:
    from onnx import helper

    node = helper.make_node("Gather", ["x", "i"], ["y"], name="rows")
    inputs = [helper.make_tensor_value_info("x", 1, [4]), helper.make_tensor_value_info("i", 7, [2])]
    session = intarsia.InferenceSession(model([node], inputs), only_here(), [NAME])
    with pytest.raises(intarsia.InvalidArgument, match=r"'rows' \(Gather\): an index is out of range"):
        session.run(None, {"x": np.zeros(4, np.float32), "i": np.array([0, 4])})


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(intarsia.EPFail, match=r"device_id is 99; there (is|are) \d+ devices?"):
        intarsia.InferenceSession(b"", only_here(), [(NAME, {"device_id": 99})])


def test_more_memory_than_the_limit_allows() -> None:
    gpu = open_device(memory_limit=1 << 16)
    with pytest.raises(intarsia.OutOfMemory, match="the limit is 65,536: raise the limit"):
        gpu.allocate(1 << 20)


# --- copies beside kernels ----------------------------------------------------------------------------------------------


def test_the_caller_goes_on_while_the_device_is_busy() -> None:
    """The queue waits for an event that the test holds back; writes return all the same, and arrive in order."""
    import pyopencl as cl

    gpu = open_device()
    place = gpu.write(np.zeros(3000, np.float32))
    gpu.read(place, 4)  # pinned memory has been made
    before, held = gpu.counters.staged_in_nbytes, cl.UserEvent(gpu._context)
    cl.enqueue_barrier(gpu._queue, wait_for=[held])
    try:
        data = np.arange(3000, dtype=np.float32)
        for _ in range(3):
            data += 1
            gpu.fill(place, data)
        assert gpu.counters.staged_in_nbytes - before == 3 * data.nbytes
        latest = gpu._blocks[(gpu._next_block - 1) % len(gpu._blocks)]
        assert latest.event.command_execution_status != cl.command_execution_status.COMPLETE
        wanted, data[:] = data.copy(), -1.0
    finally:
        held.set_status(cl.command_execution_status.COMPLETE)
    np.testing.assert_array_equal(np.frombuffer(gpu.read(place, wanted.nbytes), np.float32), wanted)


@pytest.mark.parametrize("count", [1, 1 << 18, (5 << 18) + 3, 3 << 19], ids=str)
def test_values_of_all_sizes_go_through_the_ring_again_and_again(count: int) -> None:
    """A part of a block, whole blocks, and more than the ring has, which is waited for."""
    gpu = open_device()
    for i in range(3):
        before, data = gpu.counters.staged_in_nbytes, np.arange(i, count + i, dtype=np.int32)
        place = gpu.write(data)
        np.testing.assert_array_equal(np.frombuffer(gpu.read(place, data.nbytes), np.int32), data)
        assert gpu.counters.staged_in_nbytes - before == (data.nbytes if data.nbytes <= 4 << 20 else 0)
