"""Models that onnxruntime's ModelCompiler compiles ahead with IntarsiaCPU: EPContext nodes, and the way back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from plugin_sessions import NAME, Sessions, model

import intarsia
from intarsia.cache.disk_cache import get_cache
from intarsia.ep_context import format as context_format
from intarsia.ep_context.format import completed

RNG = np.random.default_rng(8)
SOURCE = """g (float[n, 8] x, float[n, 8] z) => (float[n, 8] y, float[n, 8] w)
    { t = Transpose(x) m = MatMul(x, t) y = MatMul(m, z) w = Exp(z) }"""


def feed(n: int) -> dict[str, np.ndarray]:
    return {name: RNG.standard_normal((n, 8), np.float32) for name in "xz"}


def options(devices: list[Any], **entries: str) -> Any:
    import onnxruntime

    made = onnxruntime.SessionOptions()
    made.log_severity_level = 4
    made.add_provider_for_devices(devices, {"take_all": "1"})
    for key, value in entries.items():
        made.add_session_config_entry(key.replace("__", "."), value)
    return made


def compiled(devices: list[Any], folder: Path, *, embed: bool) -> Path:
    import onnxruntime

    source, target = folder / "model.onnx", folder / "compiled.onnx"
    source.write_bytes(model(SOURCE))
    onnxruntime.ModelCompiler(options(devices), source, embed_compiled_data_into_model=embed).compile_to_file(str(target))
    return target


def attributes(path: Path) -> dict[str, Any]:
    (node,) = onnx.load(path).graph.node
    assert node.op_type == "EPContext"
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


@pytest.mark.parametrize("embed", [True, False])
def test_it_runs_without_being_compiled(
    sessions: Sessions, devices: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, embed: bool
) -> None:
    import onnxruntime

    target = compiled(devices, tmp_path, embed=embed)
    found = attributes(target)
    assert (found["source"], found["embed_mode"], found["main_context"]) == (NAME.encode(), int(embed), 1)
    assert len(list(tmp_path.glob("compiled_*.bin"))) == int(not embed)
    monkeypatch.setattr("intarsia.ort_plugin.fused_part.program_of", None)
    session = onnxruntime.InferenceSession(str(target), options(devices))
    alone = sessions.alone(str(tmp_path / "model.onnx"))
    for n in (3, 3, 3, 4, 5, 6, 7, 1, 3):
        given = feed(n)
        for got, want in zip(session.run(None, given), alone.run(None, given), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_a_session_of_intarsias_loads_it_too(devices: list[Any], tmp_path: Path) -> None:
    session = intarsia.InferenceSession(compiled(devices, tmp_path, embed=False))
    given = feed(4)
    expected = intarsia.InferenceSession(model(SOURCE)).run(None, given)
    for got, want in zip(session.run(None, given), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_sizes_are_checked(devices: list[Any], tmp_path: Path) -> None:
    """The code relies on them, and onnxruntime knows nothing of what the node computes."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(compiled(devices, tmp_path, embed=True)), options(devices))
    for n in (2, 3, 5):
        with pytest.raises(Exception, match=rf"was compiled for its input 'z' as .*; got shape \[{n + 1}, 8\]"):
            session.run(None, {"x": feed(n)["x"], "z": feed(n + 1)["z"]})
        session.run(None, feed(n))


def test_a_model_of_others_is_not_trusted(devices: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    target = compiled(devices, tmp_path, embed=True)
    monkeypatch.setattr(context_format, "_secret", lambda create=False: b"")
    with pytest.raises(Exception, match="holds machine code that was not compiled by this user on this machine"):
        onnxruntime.InferenceSession(str(target), options(devices))
    trusting = options(devices, session__trust_compiled_model="1")
    onnxruntime.InferenceSession(str(target), trusting).run(None, feed(2))


def test_a_missing_file_is_named(devices: list[Any], tmp_path: Path) -> None:
    import onnxruntime

    target = compiled(devices, tmp_path, embed=False)
    (file,) = tmp_path.glob("compiled_*.bin")
    file.unlink()
    with pytest.raises(Exception, match=f"its file '{file.name}' is missing"):
        onnxruntime.InferenceSession(str(target), options(devices))


def test_zeros_at_the_end_come_back(devices: list[Any], tmp_path: Path) -> None:
    """A text's reader may drop them."""
    assert get_cache().place
    data = attributes(compiled(devices, tmp_path, embed=True))["ep_cache_context"]
    assert completed(data[:-5] if data.endswith(bytes(5)) else data) == data
    header = context_format._PREFIX.unpack_from(data)[1] + context_format._PREFIX.size
    assert len(completed(data[: header + 10])) == len(data)
    assert completed(b"other") == b"other"
    assert completed(data[: header - 3]) == data[: header - 3]
