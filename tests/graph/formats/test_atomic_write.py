"""Files that cannot be written: what was there before stays, nothing else is left behind, and the error says why."""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import intarsia as ort
from intarsia.cli import main
from intarsia.debug.reduce import Reduced
from intarsia.graph.formats.atomic_write import replace_file, replace_files, replace_text
from intarsia.graph.load import load
from intarsia.graph.save import save
from intarsia.model_package.authoring import ModelPackage
from intarsia.tools.onnx_model_utils import update_onnx_opset

OLD = b"what was there before"
LIMIT = 2000  # bytes that a file may have while a disk counts as full
MODEL = onnx.parser.parse_model(
    '<ir_version: 8, opset_import: ["" : 17]> g (float[n,64] x) => (float[n,64] y) { u = MatMul(x, w)  y = Tanh(u) }'
)
MODEL.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(64, dtype=np.float32), "w"))


@contextmanager
def full_disk() -> Iterator[None]:
    """Files that a process writes may not grow beyond a limit: the system's write fails, as on a full disk."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, before[1]))  # Python ignores the signal SIGXFSZ
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def model_file(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir(exist_ok=True)
    path = folder / "source.onnx"
    if not path.exists():
        path.write_bytes(MODEL.SerializeToString())
    return path


def optimised(tmp_path: Path, target: Path) -> None:
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(target)
    ort.InferenceSession(MODEL.SerializeToString(), options)


def compiled(tmp_path: Path, target: Path) -> None:
    compiler = ort.ModelCompiler(ort.SessionOptions(), str(model_file(tmp_path)), embed_compiled_data_into_model=True)
    compiler.compile_to_file(target)


def compiled_with_weights_beside(tmp_path: Path, target: Path) -> None:
    compiler = ort.ModelCompiler(
        ort.SessionOptions(), str(model_file(tmp_path)), external_initializers_file_path=f"{target.name}.weights",
        external_initializers_size_threshold=100,
    )  # fmt: skip
    compiler.compile_to_file(target)


def profiled(tmp_path: Path, target: Path) -> None:
    from intarsia.model.trace_profile import Profile

    profile = Profile(0)
    for _ in range(100):
        profile.add("Session", "an event of the session", 0)
    profile.write(target)


def adapter(tmp_path: Path, target: Path) -> None:
    made = ort.AdapterFormat()
    made.set_parameters({"w": ort.OrtValue.ortvalue_from_numpy(np.ones((64, 64), np.float32))})
    made.export_adapter(target)


def page(tmp_path: Path, target: Path) -> None:
    ort.InferenceSession(MODEL.SerializeToString()).explain().save_html(target)


def plain(tmp_path: Path, target: Path) -> None:
    save(load(model_file(tmp_path)), target)


def plain_with_weights_beside(tmp_path: Path, target: Path) -> None:
    save(load(model_file(tmp_path)), target, 100, f"{target.name}.weights")


def reduced(tmp_path: Path, target: Path) -> None:
    Reduced(MODEL.SerializeToString(), {"x": np.ones((2, 64), np.float32)}, 1, 2).save(target.with_suffix(".onnx"))


def updated(tmp_path: Path, target: Path) -> None:
    update_onnx_opset(model_file(tmp_path), 18, target)


def text(tmp_path: Path, target: Path) -> None:
    replace_text(target, "x" * 3 * LIMIT)


WRITERS: list[Callable[[Path, Path], None]] = [
    optimised, compiled, compiled_with_weights_beside, profiled, adapter, page, plain, plain_with_weights_beside, reduced,
    updated, text,
]  # fmt: skip


@pytest.mark.skipif(sys.platform == "win32", reason="limits of files are POSIX's")
@pytest.mark.parametrize("there", [True, False], ids=["over an old file", "anew"])
@pytest.mark.parametrize("write", WRITERS, ids=lambda f: f.__name__)
def test_a_full_disk(tmp_path: Path, write: Callable[[Path, Path], None], there: bool) -> None:
    folder = tmp_path / "target"
    folder.mkdir()
    target = folder / "target.npz"
    others = [folder / f"{target.name}.weights"]
    write(tmp_path, target)  # what it takes (kernels, imports) is there then
    written = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert max(map(len, written.values())) > LIMIT
    for path in folder.iterdir():
        path.unlink()
    if there:
        for path in (target, *others):
            path.write_bytes(OLD)
    message = r"cannot be written: File too large \(EFBIG\); what was there before is unchanged"
    with full_disk(), pytest.raises(ort.NotWritten, match=message) as caught:
        write(tmp_path, target)
    assert caught.value.errno == errno.EFBIG
    assert isinstance(caught.value, OSError)
    assert str(folder) in str(caught.value)
    left = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert left == ({path.name: OLD for path in (target, *others)} if there else {})


@pytest.mark.parametrize("write", WRITERS, ids=lambda f: f.__name__)
def test_what_cannot_be_a_file(tmp_path: Path, write: Callable[[Path, Path], None]) -> None:
    folder = tmp_path / "target"
    folder.mkdir()
    with pytest.raises(ort.InvalidArgument, match=r"there is no folder .*absent"):
        write(tmp_path, folder / "absent" / "x.npz")
    (folder / "x.npz").mkdir()
    with pytest.raises(ort.IntarsiaError, match=r"Is a directory \(EISDIR\)|expected the name of a file"):
        write(tmp_path, folder / "x.npz")
    with pytest.raises((ort.NotWritten, ort.InvalidArgument), match=r"cannot be written: (File name too long|.*null|.*ENOENT)"):
        write(tmp_path, folder / f"{'x' * 300}.npz")
    assert [path.name for path in folder.iterdir()] == ["x.npz"]


@pytest.mark.parametrize(
    ("number", "name"), [(errno.ENOSPC, "ENOSPC"), (errno.EACCES, "EACCES"), (errno.EROFS, "EROFS"), (errno.EIO, "EIO")]
)
def test_the_reason_is_told(tmp_path: Path, number: int, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "x"
    target.write_bytes(OLD)
    message = rf"file {re.escape(repr(str(target)))} cannot be written: {os.strerror(number)} \({name}\)"

    def refused(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    with pytest.raises(ort.NotWritten, match=message):
        replace_file(target, refused)
    for method in ("open", "replace"):
        with monkeypatch.context() as changed:
            changed.setattr(Path, method, refused)
            with pytest.raises(ort.NotWritten, match=message):
                replace_file(target, lambda file: file.write(b"new"))
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert target.read_bytes() == OLD


def test_errors_of_what_is_written_are_their_own(tmp_path: Path) -> None:
    def read(file: Any) -> None:
        (tmp_path / "absent").read_bytes()

    with pytest.raises(FileNotFoundError, match="absent"):
        replace_file(tmp_path / "x", read)
    with pytest.raises(ZeroDivisionError):
        replace_files([(tmp_path / "a", lambda file: file.write(b"a")), (tmp_path / "b", lambda file: 1 // 0)])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="links, permissions and devices are POSIX's")
def test_links_permissions_and_devices(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(OLD)
    real.chmod(0o640)
    link.symlink_to(real)
    replace_text(link, "new")
    assert link.is_symlink()
    assert (real.read_text(), stat.S_IMODE(real.stat().st_mode)) == ("new", 0o640)
    replace_text("/dev/null", "nothing")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    with pytest.raises(ort.NotWritten, match=r"file '/dev/full' cannot be written: No space left on device \(ENOSPC\)"):
        replace_text("/dev/full", "x")
    long = tmp_path / ("x" * 255)  # as long as names may be
    replace_text(long, "new")
    assert long.read_text() == "new"
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(ort.NotWritten, match="cannot be written"):
        replace_text(tmp_path / "loop", "new")


@pytest.mark.skipif(sys.platform == "win32", reason="limits of files are POSIX's")
def test_packages(tmp_path: Path) -> None:
    root = tmp_path / "package"
    package = ModelPackage()
    package.commit(root)
    before = {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    large = tmp_path / "large"
    large.mkdir()
    (large / "data").write_bytes(bytes(3 * LIMIT))
    package.add_shared_asset(str(large))
    with full_disk(), pytest.raises(ort.NotWritten, match=r"cannot be written: File too large \(EFBIG\)"):
        package.commit()
    assert {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


@pytest.mark.skipif(sys.platform == "win32", reason="/dev/full is Linux's")
def test_the_command_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model, target = str(model_file(tmp_path)), tmp_path / "out.npz"
    target.write_bytes(OLD)
    for arguments in (["run", model, "-d", "n=30", "-o", str(target)], ["dump", model, "-s", "source", "-o", str(target)]):
        assert main(arguments) == 0
        target.write_bytes(OLD)
        with full_disk():
            assert main(arguments) == 1
        assert "cannot be written: File too large (EFBIG)" in capfd.readouterr().err.replace("\n", " ")
        assert target.read_bytes() == OLD
        assert main([*arguments[:-1], "/dev/full"] if arguments[0] == "dump" else [*arguments[:-1], "/dev/null/x"]) in (1, 2)
        assert "cannot be written" in capfd.readouterr().err.replace("\n", " ")
