"""Model packages: written here and read by onnxruntime, the other way round, and what is refused."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper as h
from onnx import numpy_helper

import intarsia
from intarsia.errors import (
    ExternalDataError,
    Fail,
    InvalidArgument,
    InvalidProtobuf,
    NoSuchFile,
    NotFound,
    UnknownOption,
    WrongType,
)
from intarsia.model_package import assets

CPU = "CPUExecutionProvider"
X = np.zeros(2, np.float32)
URI = f"sha256:{'a' * 64}"
FOLDER = "session.model_external_initializers_file_folder_path"


def model(value: float = 1.0, outside: bool = False) -> bytes:
    """x + value for two numbers."""
    weight = numpy_helper.from_array(np.full(2, value, np.float32), "w")
    values = [h.make_tensor_value_info(name, 1, [2]) for name in "xy"]
    graph = h.make_graph([h.make_node("Add", ["x", "w"], ["y"])], "g", values[:1], values[1:], [weight])
    if outside:
        tensor = graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="w.bin")
    return bytes(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8).SerializeToString())


def variant(ep: str | None = CPU, **fields: Any) -> dict[str, Any]:
    ort = {"model_file": "model.onnx", **fields.pop("ort", {})}
    named = {"ep": ep} if ep is not None else {}
    return {**named, "executor_info": {"ort": ort}, **fields}


def package(root: Path, variants: dict[str, Any] | None = None, files: dict[str, Any] | None = None, **manifest: Any) -> str:
    """A package with one component "c" inside its manifest, and a model in each variant's folder."""
    variants = {"v": variant()} if variants is None else variants
    written = {f"{name}/model.onnx": model() for name in variants} | (files or {})
    text = {"schema_version": "1.0", "components": {"c": {"variants": variants}}, **manifest}
    for name, content in {"manifest.json": text, **written}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return str(root)


def options(*providers: str) -> intarsia.SessionOptions:
    made = intarsia.SessionOptions()
    for name in providers:
        made.add_provider(name, {})
    return made


def selected(root: str, made: intarsia.SessionOptions | None = None) -> intarsia.ModelPackageComponentContext:
    chosen = intarsia.ModelPackageOptions(made or options(CPU))
    return intarsia.ModelPackageContext(root).select_component("c", chosen)


def tree(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.fixture(params=["intarsia", "onnxruntime"])
def writer(request: pytest.FixtureRequest) -> Any:
    return intarsia if request.param == "intarsia" else _peer()


@pytest.fixture(params=["intarsia", "onnxruntime"])
def reader(request: pytest.FixtureRequest) -> Any:
    return intarsia if request.param == "intarsia" else _peer()


def _peer() -> Any:
    peer = pytest.importorskip("onnxruntime", reason="packages are compared with its own")
    if not hasattr(peer, "ModelPackage"):
        pytest.skip("onnxruntime has model packages from 1.32 on")
    return peer


def author(writer: Any, root: Path) -> str:
    """The same package by either library: two variants, external weights in a shared asset, a component of its own."""
    weights = root / "weights"
    weights.mkdir(parents=True)
    (weights / "w.bin").write_bytes(np.float32([5, 6]).tobytes())
    made = root / "made"
    with writer.ModelPackage() as new:
        new.set_metadata("adder", "1.0", "adds")
        new.set_component_inline("first", '{"variants": {}}')
        new.set_additional_metadata_json("manifest", json='{"b": [1, 2.5, "\u00e9"], "a": null}')
        uri = new.add_shared_asset(str(weights))
        assert uri == new.add_shared_asset(str(weights), uri)
        new.commit(str(made))
    for name, content in {"plain": model(2.0), "shared": model(outside=True)}.items():
        (made / name).mkdir()
        (made / name / "model.onnx").write_bytes(content)
    (made / "second" / "v").mkdir(parents=True)
    (made / "second" / "v" / "m.onnx").write_bytes(model(7.0))
    (made / "second" / "v" / "ort.json").write_text('{"model_file": "m.onnx"}')
    (made / "second" / "component.json").write_text('{"variants": {}}')
    with writer.ModelPackage.open(str(made)) as again:
        again.set_variant("first", "plain", json.dumps({"ep": "NoSuchProvider"}))
        again.set_variant("first", "shared", json.dumps({"ep": CPU, "device": "cpu", "variant_directory": "shared"}))
        entry = {"model_file": "model.onnx", "session_options": {FOLDER: uri}}
        again.set_variant_executor_info_inline("first", "shared", "ort", json.dumps(entry))
        again.set_component_external("second", "second")
        again.set_variant("second", "v", json.dumps({"ep": CPU}))
        again.set_variant_executor_info_external("second", "v", "ort", "ort.json")
        again.commit()
    return str(made)


class TestWithOnnxruntime:
    def test_what_one_writes_the_other_reads(self, writer: Any, reader: Any, tmp_path: Path) -> None:
        root = author(writer, tmp_path)
        context = reader.ModelPackageContext(root)
        assert context.get_schema_version() == 1
        assert context.get_component_count() == 2
        assert context.get_component_names() == ["first", "second"]
        assert context.get_variant_count("first") == 2
        assert context.get_variant_names("first") == ["plain", "shared"]
        assert context.get_variant_ep_name("first", "plain") == "NoSuchProvider"
        found = {}
        for name in context.get_component_names():
            made = reader.SessionOptions()
            made.add_provider(CPU, {})
            chosen = context.select_component(name, reader.ModelPackageOptions(made))
            assert Path(chosen.get_selected_variant_folder_path()).name == chosen.get_selected_variant_name()
            found[name] = chosen.create_session().run(None, {"x": X})[0].tolist()
        assert found == {"first": [5, 6], "second": [7, 7]}

    def test_both_write_the_same_files(self, tmp_path: Path) -> None:
        peer = _peer()
        own, other = (tree(Path(author(m, tmp_path / m.__name__))) for m in (intarsia, peer))
        assert own == other

    def test_both_tell_the_same(self, tmp_path: Path) -> None:
        root = author(intarsia, tmp_path)
        own, other = (m.ModelPackage.open(root) for m in (intarsia, _peer()))
        assert own.get_info() == other.get_info()
        assert own.get_component_json("first") == other.get_component_json("first")
        assert own.get_variant_json("second", "v") == other.get_variant_json("second", "v")
        uri = own.get_info()["shared_assets"][0]["uri"]
        for text in (uri, f"{uri}/w.bin", "plain/model.onnx"):
            assert own.resolve_string_ref(text, must_exist=True) == other.resolve_string_ref(text, must_exist=True)

    @pytest.mark.parametrize("name", ["a", "a/b", "a/\u00e9", "a.txt", "a/.hidden", "B/x"])
    def test_hashes_are_equal(self, name: str, tmp_path: Path) -> None:
        for part in (name, "a.b/c", "z"):
            (tmp_path / part).parent.mkdir(parents=True, exist_ok=True)
            if not (tmp_path / part).is_dir():
                (tmp_path / part).write_bytes(part.encode())
        (tmp_path / "empty").mkdir()
        own = intarsia.ModelPackage.compute_directory_hash(str(tmp_path))
        assert own == _peer().ModelPackage.compute_directory_hash(str(tmp_path))

    def test_what_both_refuse(self, tmp_path: Path) -> None:
        kinds = (ValueError, FileNotFoundError, RuntimeError, TypeError)
        manifests: list[Any] = [
            {}, [], {"schema_version": "2.0", "components": {}}, {"schema_version": "1.0"},
            {"schema_version": "1.0", "components": []}, {"schema_version": "1.0", "components": {"c": 3}},
            {"schema_version": "1.0", "components": {"c": "../x"}}, {"schema_version": "1.0", "components": {"c": "/x"}},
            {"schema_version": "1.0", "components": {"c": "x"}}, {"schema_version": "1.0", "components": {}, "layout": "x"},
            {"schema_version": "1.0", "components": {}, "new": 1},
            {"schema_version": "1.0", "components": {}, "package_name": 1},
            {"schema_version": "1.0", "components": {}, "shared_assets": {"x": "y"}},
            {"schema_version": "1.0", "components": {}, "shared_assets": {URI: "../y"}},
        ]  # fmt: skip
        peer = _peer()
        for k, manifest in enumerate(manifests):
            root = tmp_path / str(k)
            root.mkdir()
            (root / "manifest.json").write_text(json.dumps(manifest))
            with pytest.raises(kinds) as theirs:
                peer.ModelPackage.open(str(root))
            with pytest.raises(kinds) as ours:
                intarsia.ModelPackage.open(str(root))
            assert isinstance(ours.value, theirs.type), manifest


class TestSelection:
    def test_the_provider_decides(self, tmp_path: Path) -> None:
        root = package(tmp_path, {"none": variant(None), "cpu": variant(), "later": variant()})
        assert selected(root).get_selected_variant_name() == "cpu"
        assert selected(root, intarsia.SessionOptions()).get_selected_variant_name() == "cpu"
        policy = intarsia.SessionOptions()
        policy.set_provider_selection_policy(intarsia.OrtExecutionProviderDevicePolicy.PREFER_CPU)
        assert selected(root, policy).get_selected_variant_name() == "cpu"

    def test_the_first_provider_that_a_variant_fits(self, tmp_path: Path) -> None:
        root = package(tmp_path, {"cpu": variant(), "plain": variant("ReferenceExecutionProvider")})
        chosen = selected(root, options("TensorrtExecutionProvider", "ReferenceExecutionProvider", CPU))
        assert chosen.get_selected_variant_name() == "plain"
        session = chosen.create_session()
        assert session.get_providers()[0] == "ReferenceExecutionProvider"

    @pytest.mark.parametrize(
        ("fields", "why"),
        [
            ({"ep": None}, r"variant 'v' is for None, not for 'CPUExecutionProvider'"),
            ({"ep": "CUDAExecutionProvider"}, r"variant 'v' is for 'CUDAExecutionProvider', not for 'CPUExecutionProvider'"),
            ({"device": "gpu"}, r"variant 'v' is for a device 'gpu'; the provider's are \['cpu'\]"),
        ],
    )
    def test_why_none_fits(self, fields: dict[str, Any], why: str, tmp_path: Path) -> None:
        with pytest.raises(Fail, match=rf"No suitable model variant found .*component 'c': {why}"):
            selected(package(tmp_path, {"v": variant(**fields)}))

    def test_a_component_without_variants(self, tmp_path: Path) -> None:
        with pytest.raises(Fail, match=r"No suitable model variant found .*it has no variants"):
            selected(package(tmp_path, {}))

    def test_a_provider_that_does_not_work_here(self, tmp_path: Path) -> None:
        root = package(tmp_path, {"v": variant("TensorrtExecutionProvider")})
        with pytest.raises(Fail, match="TensorrtExecutionProvider does not work on this machine"):
            selected(root, options("TensorrtExecutionProvider"))

    def test_compiled_for_this_machine_comes_first(self, tmp_path: Path) -> None:
        source = model()
        compiled = intarsia.ModelCompiler(options(CPU), source, True).compile_to_bytes()
        from intarsia.capi._pybind_state import get_compatibility_info_from_model_bytes

        text = get_compatibility_info_from_model_bytes(compiled, CPU)
        assert text
        changed = {**json.loads(text), "intarsia": "0.0.1"}
        variants = {
            "plain": variant(),
            "others": variant(compatibility_string="a text of another runtime"),
            "old": variant(compatibility_string=json.dumps(changed)),
            "compiled": variant(compatibility_string=text, device="CPU"),
        }
        chosen = selected(package(tmp_path, variants, {"compiled/model.onnx": compiled}))
        assert chosen.get_selected_variant_name() == "compiled"
        np.testing.assert_array_equal(chosen.create_session().run(None, {"x": X})[0], X + 1)

    def test_errors(self, tmp_path: Path) -> None:
        context = intarsia.ModelPackageContext(package(tmp_path))
        chosen = intarsia.ModelPackageOptions(options())
        with pytest.raises(NotFound, match="Component model not found: 'd'; valid: 'c'"):
            context.select_component("d", chosen)
        with pytest.raises(NotFound, match="Component model not found: 'd'"):
            context.get_variant_names("d")
        with pytest.raises(NotFound, match="Variant 'w' not found in component 'c'"):
            context.get_variant_ep_name("c", "w")
        with pytest.raises(WrongType, match="component_name: expected text, got 3"):
            context.get_variant_count(3)  # type: ignore[arg-type]
        with pytest.raises(WrongType, match="options: expected ModelPackageOptions, got SessionOptions"):
            context.select_component("c", options())  # type: ignore[arg-type]
        with pytest.raises(WrongType, match="ModelPackageOptions: expected SessionOptions, got int"):
            intarsia.ModelPackageOptions(3)  # type: ignore[arg-type]
        with pytest.raises(WrongType, match=r"ModelPackageContext.select_component makes it"):
            intarsia.ModelPackageComponentContext()


class TestSession:
    def test_with_the_packages_options(self, tmp_path: Path) -> None:
        ort = {"session_options": {"session.intra_op_num_threads": "1", "session.disable_prepacking": "1"}}
        chosen = selected(package(tmp_path, {"v": variant(ort=ort)}))
        session = chosen.create_session()
        assert isinstance(session, intarsia.InferenceSession)
        assert session.get_session_options().intra_op_num_threads == 1
        assert session.get_session_options().get_session_config_entry("session.disable_prepacking") == "1"
        np.testing.assert_array_equal(chosen._create_session().run(["y"], {"x": X})[0], X + 1)

    def test_with_the_programs_options_alone(self, tmp_path: Path) -> None:
        ort = {"session_options": {"session.disable_prepacking": "1"}, "provider_options": {"no_such": "1"}}
        chosen = selected(package(tmp_path, {"v": variant(ort=ort)}))
        own = intarsia.SessionOptions()
        session = chosen.create_session(own)
        assert session.get_session_options() is own
        assert own.config_entries() == {}
        own.add_provider("ReferenceExecutionProvider", {})
        assert chosen.create_session(own).get_providers()[0] == "ReferenceExecutionProvider"
        with pytest.raises(UnknownOption, match="CPUExecutionProvider has no option 'no_such'"):
            chosen.create_session()
        with pytest.raises(WrongType, match="sess_options: expected SessionOptions or None, got int"):
            chosen.create_session(3)  # type: ignore[arg-type]

    def test_an_entry_that_is_not_known_is_a_warning(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        ort = {"session_options": {"session.intra_op_thread_count": "4"}}
        selected(package(tmp_path, {"v": variant(ort=ort)})).create_session()
        assert "variant 'v' of component 'c': the entry 'session.intra_op_thread_count' is not known" in caplog.text

    def test_a_value_that_does_not_fit(self, tmp_path: Path) -> None:
        ort = {"session_options": {"session.disable_prepacking": "yes"}}
        with pytest.raises(InvalidArgument, match=r"session_options of variant 'v' of component 'c': .*expected '0' or '1'"):
            selected(package(tmp_path, {"v": variant(ort=ort)})).create_session()

    @pytest.mark.parametrize("place", ["shared", "below", "beside"])
    def test_weights_outside(self, place: str, tmp_path: Path) -> None:
        data = np.float32([5, 6]).tobytes()
        (tmp_path / "w").mkdir()
        (tmp_path / "w" / "w.bin").write_bytes(data)
        uri = intarsia.ModelPackage.compute_directory_hash(tmp_path / "w")
        where = {"shared": uri, "below": "ww", "beside": ""}[place]
        file = {"shared": f"shared_assets/{uri.replace(':', '-')}", "below": "v/ww", "beside": "v"}[place]
        ort = {"session_options": {FOLDER: where}} if where else {}
        files = {"v/model.onnx": model(outside=True), f"{file}/w.bin": data}
        chosen = selected(package(tmp_path / "p", {"v": variant(ort=ort)}, files))
        own = intarsia.SessionOptions()
        for given in (None, own):
            np.testing.assert_array_equal(chosen.create_session(given).run(None, {"x": X})[0], [5, 6])
        assert own.config_entries() == {}
        if where:
            (tmp_path / "other").mkdir()
            own.add_session_config_entry(FOLDER, str(tmp_path / "other"))
            with pytest.raises(ExternalDataError, match=r"w\.bin"):
                chosen.create_session(own)

    def test_no_model(self, tmp_path: Path) -> None:
        variants = {"v": {"ep": CPU}}
        with pytest.raises(Fail, match=r"variant 'v' has no executor_info\[\"ort\"\]\[\"model_file\"\]. Component: c"):
            selected(package(tmp_path / "a", variants)).create_session()
        with pytest.raises(NoSuchFile, match=r"nope\.onnx"):
            selected(package(tmp_path / "b", {"v": variant(ort={"model_file": "nope.onnx"})})).create_session()
        with pytest.raises(InvalidProtobuf):
            selected(package(tmp_path / "c", files={"v/model.onnx": b"abc"})).create_session()

    def test_its_folder_is_no_model(self, tmp_path: Path) -> None:
        with pytest.raises(NoSuchFile, match="is a folder: open a model package by ModelPackageContext"):
            intarsia.InferenceSession(package(tmp_path))

    def test_a_variant_without_a_folder(self, tmp_path: Path) -> None:
        root = Path(package(tmp_path))
        (root / "v" / "model.onnx").rename(root / "model.onnx")
        (root / "v").rmdir()
        chosen = selected(str(root))
        assert chosen.get_selected_variant_folder_path() == ""
        np.testing.assert_array_equal(chosen.create_session().run(None, {"x": X})[0], X + 1)


class TestAuthoring:
    def test_names_and_texts(self) -> None:
        new = intarsia.ModelPackage()
        new.set_metadata("n", "1", "d")
        new.set_metadata(description="")
        info = new.get_info()
        assert (info["package_name"], info["package_version"], info["description"]) == ("n", "1", None)
        with pytest.raises(WrongType, match="set_metadata: package_name: expected text or None, got 3"):
            new.set_metadata(3)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="layout must be 'portable' or 'installed', got 'x'"):
            new.set_layout("x")

    @pytest.mark.parametrize(
        ("text", "error"),
        [
            ("{", "component 'c': JSON parse error"),
            ("[]", "component 'c': expected a JSON object, got an array"),
            ("{}", "component 'c': missing required 'variants' object"),
            ('{"variants": []}', "component 'c': 'variants' must be an object, got an array"),
            ('{"variants": {}, "variant": 1}', r"component 'c': unknown field 'variant'. did you mean 'variants'\?"),
            ('{"variants": {}, "component_name": 1}', "component 'c': component_name must be a string"),
            ('{"variants": {"v": 3}}', "variant 'v': expected a JSON object, got a number"),
            ('{"variants": {"v": {"ep": 3}}}', "variant 'v': 'ep' must be a string, got a number"),
            ('{"variants": {"v": {"executor_info": []}}}', "variant 'v': executor_info must be an object"),
            (
                '{"variants": {"v": {"executor_info": {"ort": 3}}}}',
                r"executor_info\['ort'\] must be a string \(path\) or",
            ),
            (
                '{"variants": {"v": {"variant_directory": "../x"}}}',
                r"segments are not allowed in portable layout: '\.\./x'",
            ),
            ('{"variants": {"/tmp": {}}}', "absolute or drive-rooted path '/tmp' is not allowed"),
            ('{"variants": {"v": {"ep": "\\ud800"}}}', "JSON parse error: .*surrogates not allowed"),
            ('{"variants": {}, "additional_metadata": NaN}', "JSON parse error: NaN is not JSON"),
            ('{"variants": {}, "additional_metadata": 1e999}', "JSON parse error: 1e999 is too large"),
        ],
    )
    def test_components_that_are_none(self, text: str, error: str) -> None:
        new = intarsia.ModelPackage()
        with pytest.raises(InvalidArgument, match=error):
            new.set_component_inline("c", text)
        assert new.get_info()["components"] == []
        with pytest.raises(WrongType, match=r"component 'c': expected JSON as text, got \{\}"):
            new.set_component_inline("c", {})  # type: ignore[arg-type]

    def test_what_is_not_there(self) -> None:
        new = intarsia.ModelPackage()
        new.set_component_inline("c", '{"variants": {}}')
        with pytest.raises(NoSuchFile, match="SetVariant: component 'd' not found; valid: 'c'"):
            new.set_variant("d", "v", "{}")
        with pytest.raises(NoSuchFile, match="variant 'v' not found in component 'c'"):
            new.get_variant_json("c", "v")
        with pytest.raises(NoSuchFile, match="component 'd' not found"):
            new.set_variant_executor_info_inline("d", "v", "ort", "{}")
        with pytest.raises(NoSuchFile, match="variant 'v' not found"):
            new.remove_variant_executor_info("c", "v", "ort")
        with pytest.raises(WrongType, match="component_name: expected text, got 3"):
            new.get_component_json(3)  # type: ignore[arg-type]
        new.set_variant("c", "v", "{}")
        with pytest.raises(WrongType, match="variant_name: expected text, got 3"):
            new.get_variant_json("c", 3)  # type: ignore[arg-type]
        new.remove_variant("d", "v")
        new.remove_component("d")
        new.remove_shared_asset(URI)

    def test_executors(self) -> None:
        new = intarsia.ModelPackage()
        new.set_component_inline("c", '{"variants": {"v": {}}}')
        new.set_variant_executor_info_inline("c", "v", "ort", '{"model_file": "m"}')
        new.set_variant_executor_info_external("c", "v", "other", "o.json")
        assert json.loads(new.get_variant_json("c", "v"))["executor_info"] == {"ort": {"model_file": "m"}, "other": "o.json"}
        new.remove_variant_executor_info("c", "v", "other")
        new.remove_variant_executor_info("c", "v", "other")
        assert new.get_info()["components"][0]["variants"][0]["executor_info"] == {"ort": '{"model_file":"m"}'}
        with pytest.raises(InvalidArgument, match=r"executor_info inline value: expected a JSON object, got '\[\]'"):
            new.set_variant_executor_info_inline("c", "v", "ort", "[]")

    def test_free_metadata(self) -> None:
        new = intarsia.ModelPackage()
        new.set_component_inline("c", '{"variants": {"v": {}}}')
        new.set_additional_metadata_json("manifest", json="null")
        new.set_additional_metadata_json("component", "c", json="[1]")
        new.set_additional_metadata_json("variant", "c", "v", '{"a": 1}')
        info = new.get_info()
        assert info["additional_metadata_json"] == "null"
        assert info["components"][0]["additional_metadata_json"] == "[1]"
        assert info["components"][0]["variants"][0]["additional_metadata_json"] == '{"a":1}'
        new.set_additional_metadata_json("component", "c")
        assert new.get_info()["components"][0]["additional_metadata_json"] is None
        wrong: list[tuple[tuple[Any, ...], str]] = [
            (("manifest", "c"), "'manifest' scope takes no component/variant"),
            (("component",), "'component' scope: 'component_name' must not be None"),
            (("component", "c", "v"), "'component' scope: takes no variant"),
            (("variant", "c"), "'variant' scope: 'variant_name' must not be None"),
            (("all",), "scope must be 'manifest', 'component', or 'variant', got 'all'"),
        ]
        for arguments, error in wrong:
            with pytest.raises(InvalidArgument, match=error):
                new.set_additional_metadata_json(*arguments)

    def test_a_closed_package(self) -> None:
        with intarsia.ModelPackage() as new:
            new.set_metadata("n")
        new.close()
        for call in (new.get_info, new.prune, new.commit, new.__enter__):
            with pytest.raises(InvalidArgument, match="Model package is closed"):
                call()

    def test_a_new_package_makes_the_folders_that_it_names(self, tmp_path: Path) -> None:
        new = intarsia.ModelPackage()
        new.set_component_inline("c", json.dumps({"variants": {"v": variant(variant_directory="c/v")}}))
        new.commit(tmp_path / "p")
        (tmp_path / "p" / "c" / "v" / "model.onnx").write_bytes(model(3.0))
        np.testing.assert_array_equal(selected(str(tmp_path / "p")).create_session().run(None, {"x": X})[0], X + 3)

    def test_folders_that_do_not_exist(self, tmp_path: Path) -> None:
        opened = intarsia.ModelPackage.open(package(tmp_path))
        with pytest.raises(NoSuchFile, match="w' does not exist"):
            opened.set_variant("c", "w", '{"variant_directory": "w"}')
        with pytest.raises(NoSuchFile, match=r"points at an external file but the variant has no resolved variant_directory"):
            opened.set_variant("c", "w", '{"executor_info": {"ort": "o.json"}}')
        with pytest.raises(NoSuchFile, match=r"o\.json' does not exist"):
            opened.set_variant_executor_info_external("c", "v", "ort", "o.json")
        assert json.loads(opened.get_component_json("c"))["variants"] == {"v": variant()}

    def test_external_components(self, tmp_path: Path) -> None:
        with pytest.raises(Fail, match="SetComponentExternal requires a package_root"):
            intarsia.ModelPackage().set_component_external("d", "d")
        root = Path(package(tmp_path))
        opened = intarsia.ModelPackage.open(root)
        opened.set_component_external("d", "d")
        opened.set_component_external("e", "e/e.json")
        with pytest.raises(InvalidArgument, match="segments are not allowed"):
            opened.set_component_external("f", "../f")
        opened.commit()
        assert (root / "d" / "component.json").read_text() == '{\n  "variants": {}\n}\n'
        assert json.loads((root / "manifest.json").read_text())["components"] == {
            "c": {"variants": {"v": variant()}}, "d": "d", "e": "e/e.json",
        }  # fmt: skip
        assert intarsia.ModelPackageContext(root).get_component_names() == ["c", "d", "e"]

    def test_fields_of_later_versions_are_kept(self, tmp_path: Path) -> None:
        root = Path(package(tmp_path, schema_version="1.7", later={"x": [1]}))
        opened = intarsia.ModelPackage.open(root)
        opened.set_metadata("n")
        opened.commit()
        written = json.loads((root / "manifest.json").read_text())
        assert written["later"] == {"x": [1]}
        assert opened.get_info()["schema_version_minor"] == 7
        strict = Path(package(tmp_path / "strict", later=1))
        with pytest.raises(InvalidArgument, match="manifest: unknown field 'later'"):
            intarsia.ModelPackage.open(strict)
        intarsia.ModelPackage.open(strict, strict_unknown_fields=False)


class TestCommit:
    def external(self, root: Path) -> Path:
        files = {
            "a/component.json": {"variants": {"v": {"ep": CPU, "executor_info": {"ort": {"model_file": "model.onnx"}}}}},
            "a/v/model.onnx": model(4.0), "a/v/sub/note.txt": b"n", "other.txt": b"not the package's",
        }  # fmt: skip
        return Path(package(root, {}, files, components={"c": "a"}))

    def test_to_a_new_place_whole(self, tmp_path: Path) -> None:
        root = self.external(tmp_path / "p")
        opened = intarsia.ModelPackage.open(root)
        opened.commit(tmp_path / "deep" / "er")
        assert set(tree(tmp_path / "deep" / "er")) == set(tree(root)) - {"other.txt"}
        assert opened.get_info()["components"][0]["variants"][0]["variant_directory"] == str(
            tmp_path / "deep" / "er" / "a" / "v"
        )
        np.testing.assert_array_equal(selected(str(tmp_path / "deep" / "er")).create_session().run(None, {"x": X})[0], X + 4)
        opened.commit()

    @pytest.mark.parametrize("elsewhere", [False, True])
    def test_dense(self, elsewhere: bool, tmp_path: Path) -> None:
        root = self.external(tmp_path / "p")
        opened = intarsia.ModelPackage.open(root)
        opened.commit(tmp_path / "q" if elsewhere else None, intarsia.ModelPackageWriteMode.DENSE)
        made = tmp_path / "q" if elsewhere else root
        (made / "a" / "component.json").unlink(missing_ok=True)
        component = json.loads((made / "manifest.json").read_text())["components"]["c"]
        assert component["variants"]["v"]["variant_directory"] == "a/v"
        np.testing.assert_array_equal(selected(str(made)).create_session().run(None, {"x": X})[0], X + 4)
        assert opened.get_info()["components"][0]["variants"][0]["variant_directory"] == str(made / "a" / "v")

    def test_what_dense_refuses(self, tmp_path: Path) -> None:
        files = {"v/o.json": {"model_file": "model.onnx"}}
        opened = intarsia.ModelPackage.open(package(tmp_path, {"v": {"executor_info": {"ort": "o.json"}}}, files))
        with pytest.raises(Fail, match="component 'c' variant 'v' has external executor_info 'ort'"):
            opened.commit(mode=intarsia.ModelPackageWriteMode.DENSE)
        with pytest.raises(WrongType, match="commit: mode: expected ModelPackageWriteMode, got 1"):
            opened.commit(mode=1)  # type: ignore[arg-type]

    def test_places_that_are_taken(self, tmp_path: Path) -> None:
        new = intarsia.ModelPackage()
        with pytest.raises(Fail, match=r"Commit: package has no package_root. Give dest_root"):
            new.commit()
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "x").write_text("1")
        with pytest.raises(Fail, match="full' is not empty"):
            new.commit(tmp_path / "full")
        with pytest.raises(Fail, match="x' exists and is not a directory"):
            new.commit(tmp_path / "full" / "x")
        (tmp_path / "empty").mkdir()
        new.commit(tmp_path / "empty")
        assert intarsia.ModelPackageContext(tmp_path / "empty").get_component_count() == 0

    def test_a_failure_leaves_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        root = self.external(tmp_path / "p")
        opened = intarsia.ModelPackage.open(root)
        before = tree(tmp_path)

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        opened.set_metadata("changed")
        opened.set_variant("c", "w", "{}")
        monkeypatch.setattr(os, "fsync", full)
        for place in (None, tmp_path / "q"):
            with pytest.raises(OSError, match="No space left"):
                opened.commit(place)
        assert tree(tmp_path) == before
        monkeypatch.undo()
        opened.commit()
        assert intarsia.ModelPackageContext(root).get_variant_names("c") == ["v", "w"]

    def test_a_process_that_is_killed_leaves_a_package(self, tmp_path: Path) -> None:
        """Whatever moment it dies in: the files that were there, or those that come; never half of one."""
        root = self.external(tmp_path / "p")
        script = (
            "import os, sys, intarsia\n"
            "opened = intarsia.ModelPackage.open(sys.argv[1])\n"
            "opened.set_variant('c', 'w', '{}')\n"
            "opened.set_metadata('changed')\n"
            "left = int(sys.argv[2])\n"
            "replace = os.replace\n"
            "import pathlib\n"
            "def counted(self, target):\n"
            "    global left\n"
            "    left -= 1\n"
            "    if left < 0: os._exit(9)\n"
            "    return replace(self, target)\n"
            "pathlib.Path.replace = counted\n"
            "opened.commit()\n"
        )
        for moves, names in ((0, ["v"]), (1, ["v", "w"]), (2, ["v", "w"])):
            subprocess.run([sys.executable, "-c", script, str(root), str(moves)], check=False)
            assert intarsia.ModelPackageContext(root).get_variant_names("c") == names
        assert json.loads((root / "manifest.json").read_text())["package_name"] == "changed"
        opened = intarsia.ModelPackage.open(root)
        for path in root.rglob("*.tmp.*"):
            os.utime(path, (1, 1))
        opened.prune()
        assert not list(root.glob("*.tmp.*"))

    def test_portable_again(self, tmp_path: Path) -> None:
        root = Path(package(tmp_path / "p"))
        (tmp_path / "asset").mkdir()
        (tmp_path / "asset" / "f").write_text("1")
        opened = intarsia.ModelPackage.open(root)
        with pytest.raises(Fail, match="copy_in=False rejected in portable layout"):
            opened.add_shared_asset(tmp_path / "asset", copy_in=False)
        opened.set_layout("installed")
        uri = opened.add_shared_asset(tmp_path / "asset", copy_in=False)
        opened.commit()
        assert opened.resolve_string_ref(f"{uri}/f") == str(tmp_path / "asset" / "f")
        opened.set_layout("portable")
        before = (root / "manifest.json").read_bytes()
        with pytest.raises(InvalidArgument, match="is not allowed in portable layout"):
            opened.commit()
        assert (root / "manifest.json").read_bytes() == before
        assert opened.get_info()["shared_assets"][0]["resolved_path"] == str(tmp_path / "asset")
        opened.remove_shared_asset(uri)
        opened.commit()
        assert (tmp_path / "asset" / "f").is_file()

    def test_an_installed_package_moves(self, tmp_path: Path) -> None:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "model.onnx").write_bytes(model(8.0))
        variants = {"v": variant(variant_directory="../out")}
        opened = intarsia.ModelPackage.open(package(tmp_path / "p", variants, layout="installed"))
        opened.commit(tmp_path / "q" / "r")
        np.testing.assert_array_equal(selected(str(tmp_path / "q" / "r")).create_session().run(None, {"x": X})[0], X + 8)

    def test_a_linked_folder_is_not_lost(self, tmp_path: Path) -> None:
        root = Path(package(tmp_path / "p"))
        (root / "v" / "more").symlink_to(root / "v", target_is_directory=True)
        with pytest.raises(InvalidArgument, match="more' is a link to a folder, which is not copied"):
            intarsia.ModelPackage.open(root).commit(tmp_path / "q")
        assert not (tmp_path / "q").exists()


class TestSharedAssets:
    @pytest.fixture
    def asset(self, tmp_path: Path) -> Path:
        (tmp_path / "asset" / "sub").mkdir(parents=True)
        (tmp_path / "asset" / "f").write_bytes(b"1")
        (tmp_path / "asset" / "sub" / "g").write_bytes(b"2")
        return tmp_path / "asset"

    def test_the_hash_is_that_of_a_list(self, asset: Path) -> None:
        lines = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in (("f", b"1"), ("sub/g", b"2")))
        expected = f"sha256:{hashlib.sha256(lines.encode()).hexdigest()}"
        assert intarsia.ModelPackage.compute_directory_hash(asset) == expected

    def test_what_has_no_hash(self, asset: Path) -> None:
        compute = intarsia.ModelPackage.compute_directory_hash
        for path in (asset / "f", asset / "none"):
            with pytest.raises(NoSuchFile, match="is not a directory"):
                compute(path)
        with pytest.raises(WrongType, match="source_dir: expected text, got 3"):
            compute(3)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="source_dir: a path has no NUL character"):
            compute("a\0b")
        (asset / "link").symlink_to(asset / "f")
        with pytest.raises(InvalidArgument, match="symlink not allowed"):
            compute(asset)
        (asset / "link").unlink()
        if hasattr(os, "mkfifo"):
            os.mkfifo(asset / "pipe")
            with pytest.raises(InvalidArgument, match="unsupported file kind"):
                compute(asset)

    def test_copied_by_commit(self, asset: Path, tmp_path: Path) -> None:
        opened = intarsia.ModelPackage.open(package(tmp_path / "p"))
        with pytest.raises(Fail, match=r"AddSharedAsset: hash mismatch: computed sha256:.*, expected sha256:aaa"):
            opened.add_shared_asset(asset, URI)
        with pytest.raises(NoSuchFile, match=r"AddSharedAsset: .* is not a directory"):
            opened.add_shared_asset(tmp_path / "none")
        uri = opened.add_shared_asset(asset)
        assert opened.resolve_asset_uri(uri) == str(asset)
        opened.commit()
        copied = tmp_path / "p" / "shared_assets" / uri.replace(":", "-")
        assert opened.resolve_asset_uri(uri) == str(copied)
        assert tree(copied) == tree(asset)
        assert [a["uri"] for a in intarsia.ModelPackage.open(tmp_path / "p").get_info()["shared_assets"]] == [uri]
        opened.remove_shared_asset(uri)
        assert not copied.exists()
        with pytest.raises(NoSuchFile, match="Asset URI not declared in this package"):
            opened.resolve_asset_uri(uri)

    def test_changed_before_the_commit(self, asset: Path, tmp_path: Path) -> None:
        opened = intarsia.ModelPackage.open(package(tmp_path / "p"))
        opened.add_shared_asset(asset)
        (asset / "f").write_bytes(b"3")
        with pytest.raises(Fail, match="Shared asset source mutated during commit"):
            opened.commit()
        assert not list((tmp_path / "p" / "shared_assets").iterdir())
        assets.remove_folder(asset)
        with pytest.raises(NoSuchFile, match=r"shared asset source .* is not a directory"):
            opened.commit()

    def test_a_copy_that_was_tampered_with_does_not_move(self, asset: Path, tmp_path: Path) -> None:
        root = Path(package(tmp_path / "p", files={f"shared_assets/{URI.replace(':', '-')}/x": b"1"}))
        with pytest.raises(Fail, match="expected sha256:aaa"):
            intarsia.ModelPackage.open(root).commit(tmp_path / "q")
        assert not (tmp_path / "q").exists()

    def test_references(self, asset: Path, tmp_path: Path) -> None:
        root = Path(package(tmp_path / "p"))
        opened = intarsia.ModelPackage.open(root)
        uri = opened.add_shared_asset(asset)
        opened.commit()
        folder = root / "shared_assets" / uri.replace(":", "-")
        for reader in (opened, intarsia.ModelPackageContext(root)):
            resolve = reader.resolve_string_ref
            assert resolve(uri) == str(folder)
            assert resolve(f"{uri}/sub/g", must_exist=True) == str(folder / "sub" / "g")
            assert resolve("v/model.onnx") == str(root / "v" / "model.onnx")
            assert resolve("model.onnx", str(root / "v")) == str(root / "v" / "model.onnx")
            assert resolve("sha256:12") == str(root / "sha256:12")
            for text in ("../x", "v/../../x", f"{uri}/../x", "/etc/passwd", f"{uri}//etc", "\\\\host\\x"):
                with pytest.raises(InvalidArgument, match="not allowed in portable layout"):
                    resolve(text)
            with pytest.raises(InvalidArgument, match="escapes package_root"):
                resolve("x", str(tmp_path))
            with pytest.raises(InvalidArgument, match="input must not be empty"):
                resolve("")
            with pytest.raises(InvalidArgument, match="NUL character"):
                resolve("a\0b")
            with pytest.raises(NoSuchFile, match="nope' does not exist"):
                resolve(f"{uri}/nope", must_exist=True)
            with pytest.raises(NoSuchFile, match="Asset URI not declared"):
                resolve(f"{URI}/x")
            with pytest.raises(WrongType, match="string_ref: expected text, got 3"):
                resolve(3)  # type: ignore[arg-type]


class TestPrune:
    def test_what_nothing_refers_to(self, tmp_path: Path) -> None:
        variants = {"v": variant(), "w": variant(), "x": variant(variant_directory="x")}
        root = Path(package(tmp_path, variants, {"d/component.json": {"variants": {}}, "y/f": b""}))
        opened = intarsia.ModelPackage.open(root)
        opened.set_component_external("d", "d")
        opened.commit()
        opened.remove_variant("c", "w")
        opened.set_variant("c", "x", json.dumps(variant(variant_directory="y")))
        opened.remove_component("d")
        opened.prune()
        assert {"w", "x", "d"} <= {path.name for path in root.iterdir()}, "the manifest on the disk names them"
        opened.commit()
        assert {path.name for path in root.iterdir()} == {"manifest.json", "v", "y"}

    def test_after_the_commit(self, tmp_path: Path) -> None:
        root = Path(package(tmp_path, {"v": variant(), "w": variant()}))
        opened = intarsia.ModelPackage.open(root)
        opened.remove_variant("c", "w")
        opened.commit()
        assert (root / "w").is_dir()
        opened.prune()
        assert not (root / "w").exists()
        opened.remove_component("c")
        opened.set_component_inline("c", json.dumps({"variants": {"v": variant()}}))
        opened.commit()
        opened.prune()
        assert (root / "v" / "model.onnx").is_file(), "it is used again"

    def test_never_the_root_or_what_is_outside(self, tmp_path: Path) -> None:
        (tmp_path / "out").mkdir()
        variants = {"v": variant(variant_directory="."), "w": variant(variant_directory="../out")}
        root = Path(package(tmp_path / "p", variants, layout="installed"))
        opened = intarsia.ModelPackage.open(root)
        opened.remove_component("c")
        opened.commit()
        opened.prune()
        assert (root / "manifest.json").is_file()
        assert (tmp_path / "out").is_dir()

    def test_what_writes_left(self, tmp_path: Path) -> None:
        root = Path(package(tmp_path, files={"shared_assets/a.tmp.1/f": b"", "shared_assets/b.tmp.2/f": b""}))
        (root / "manifest.json.tmp.3").write_text("{")
        for name in ("shared_assets/a.tmp.1", "manifest.json.tmp.3"):
            os.utime(root / name, (time.time() - 120,) * 2)
        intarsia.ModelPackage.open(root).prune()
        assert {path.name for path in root.rglob("*.tmp.*")} == {"b.tmp.2"}, "a young one may be another process's"


class TestHostile:
    """Packages that somebody else wrote."""

    @pytest.mark.parametrize(
        ("content", "error"),
        [
            (b"", "Failed to parse JSON at .*manifest.json"),
            (b"\0", "Failed to parse JSON"),
            (b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
            (b'{"schema_version": ' + b"1" * 10_000 + b"}", "Failed to parse JSON"),
            (b'{"schema_version": "\xff"}', "not UTF-8"),
            (b'{"schema_version": 1.0, "components": {}}', "'schema_version' must be a \"<major>.<minor>\" string, got 1.0"),
            (b'{"schema_version": "1.0.0", "components": {}}', "'schema_version' must be"),
            (
                b'{"schema_version": "9.0", "components": {}}',
                "schema_version major 9 is not supported",
            ),
            (
                b'{"schema_version": "1.0", "components": {"c": null}}',
                r"value must be a string \(path\) or object",
            ),
            (
                b'{"schema_version": "1.0", "components": {}, "layout": "x"}',
                "'layout' must be 'portable' or 'installed', got 'x'",
            ),
            (b'{"schema_version": "1.0", "components": {}, "shared_assets": []}', "shared_assets must be an object"),
            (b'{"schema_version": "1.0", "components": {}, "shared_assets": {"x": ""}}', "'x' is not a valid sha256:<hex> URI"),
        ],
    )
    def test_manifests(self, content: bytes, error: str, tmp_path: Path) -> None:
        (tmp_path / "manifest.json").write_bytes(content)
        with pytest.raises(InvalidArgument, match=error):
            intarsia.ModelPackage.open(tmp_path)
        with pytest.raises(InvalidArgument, match=f"Failed to open model package at .*{error}"):
            intarsia.ModelPackageContext(tmp_path)

    def test_a_byte_order_mark_is_read(self, tmp_path: Path) -> None:
        (tmp_path / "manifest.json").write_bytes(b'\xef\xbb\xbf{"schema_version": 1, "components": {}}')
        assert intarsia.ModelPackageContext(tmp_path).get_schema_version() == 1

    def test_a_huge_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("intarsia.model_package.json_text.MAX_NBYTES", 100)
        with pytest.raises(InvalidArgument, match=r"manifest\.json' is larger than the 0 MiB"):
            intarsia.ModelPackage.open(package(tmp_path))

    def test_missing_files(self, tmp_path: Path) -> None:
        with pytest.raises(NoSuchFile, match=r"package_root .* is not a directory"):
            intarsia.ModelPackage.open(tmp_path / "none")
        with pytest.raises(NoSuchFile, match=r"Cannot open file: .*manifest.json"):
            intarsia.ModelPackageContext(tmp_path)
        with pytest.raises(WrongType, match="package_root: expected text, got 3"):
            intarsia.ModelPackage.open(3)  # type: ignore[arg-type]
        for k, (components, error) in enumerate(
            [
                ({"c": "d"}, "d' does not exist"),
                ({"c": "e"}, "component 'c': directory has no 'component.json'"),
                ({"c": {"variants": {"v": {"variant_directory": "none"}}}}, "none' does not exist"),
                ({"c": {"variants": {"v": {"executor_info": {"ort": "none.json"}}}}}, r"none\.json' does not exist"),
            ]
        ):
            root = package(tmp_path / str(k), {}, {"e/x": b"", "v/x": b""}, components=components)
            with pytest.raises(NoSuchFile, match=error):
                intarsia.ModelPackageContext(root)

    @pytest.mark.parametrize("path", ["../out", "/tmp", "v/../../out"])
    def test_paths_that_leave_the_package(self, path: str, tmp_path: Path) -> None:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "component.json").write_text('{"variants": {}}')
        wrong: list[dict[str, Any]] = [
            {"components": {"c": path}},
            {"components": {"c": {"variants": {"v": {"variant_directory": path}}}}},
            {"components": {"c": {"variants": {"v": {"executor_info": {"any": path}}}}}},
            {"components": {}, "shared_assets": {URI: path}},
        ]
        for k, manifest in enumerate(wrong):
            root = package(tmp_path / str(k), {}, {"v/x": b""}, **manifest)
            with pytest.raises(InvalidArgument, match="not allowed in portable layout"):
                intarsia.ModelPackage.open(root)
        for key in ("model_file", "session_options"):
            value: Any = path if key == "model_file" else {FOLDER: path}
            root = package(tmp_path / key, {"v": variant(ort={key: value})})
            intarsia.ModelPackage.open(root)
            with pytest.raises(InvalidArgument, match=r"Failed to resolve ORT variant .*for variant 'v' in component 'c'"):
                intarsia.ModelPackageContext(root)

    def test_a_name_that_no_file_can_have(self, tmp_path: Path) -> None:
        long = "x" * 5000
        for k, component in enumerate(
            [long, {"variants": {long: {}}}, {"variants": {"v": {"variant_directory": f"v/{long}"}}}]
        ):
            root = package(tmp_path / str(k), {}, {"v/x": b""}, components={"c": component})
            with pytest.raises(InvalidArgument, match="cannot be looked at: File name too long"):
                intarsia.ModelPackage.open(root)

    def test_links(self, tmp_path: Path) -> None:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "model.onnx").write_bytes(model())
        (tmp_path / "out" / "component.json").write_text('{"variants": {}}')
        root = Path(package(tmp_path / "a", {}, components={"c": {"variants": {"v": {}}}}))
        (root / "v").symlink_to(tmp_path / "out")
        with pytest.raises(InvalidArgument, match="out' escapes package_root"):
            intarsia.ModelPackage.open(root)
        intarsia.ModelPackage.open(root, allow_external_paths=True)
        root = Path(package(tmp_path / "b", {}, components={"c": "d"}))
        (root / "d").symlink_to(tmp_path / "out")
        with pytest.raises(InvalidArgument, match="escapes package_root"):
            intarsia.ModelPackageContext(root)
        root = Path(package(tmp_path / "c"))
        (root / "v" / "model.onnx").unlink()
        (root / "v" / "model.onnx").symlink_to(tmp_path / "out" / "model.onnx")
        with pytest.raises(InvalidArgument, match="Failed to resolve ORT variant 'model_file'"):
            intarsia.ModelPackageContext(root)
        root = Path(package(tmp_path / "d"))
        (root / "v").rename(root / "real")
        (root / "v").symlink_to(root / "real")
        assert selected(str(root)).get_selected_variant_folder_path() == str(root / "real")
        with pytest.raises(InvalidArgument, match="contains a link, and follow_symlinks is False"):
            intarsia.ModelPackage.open(root, follow_symlinks=False)
        root = tmp_path / "e"
        root.mkdir()
        (root / "manifest.json").symlink_to(tmp_path / "d" / "manifest.json")
        with pytest.raises(InvalidArgument, match="escapes package_root"):
            intarsia.ModelPackageContext(root)

    @pytest.mark.parametrize(
        ("ort", "error"),
        [
            ({"model_file": 3}, "model_file must be a string for variant 'v' in component 'c', got 3"),
            ({"session_options": []}, r"'session_options' must be a JSON object for variant 'v' in component 'c', got \[\]"),
            ({"session_options": {"a": 1}}, "'session_options' entries must be strings"),
            ({"provider_options": {"": "1"}}, "'provider_options' has an entry named ''"),
            *(
                ({"session_options": {key: "1"}}, f"'{key}' cannot be set in model package session options")
                for key in (
                    "session.optimized_model_filepath",
                    "session.enable_profiling",
                    "session.collect_node_memory_stats_to_file",
                    "session.debug_layout_transformation",
                    "session.trust_compiled_model",
                    "ep.context_enable",
                )
            ),
            *(
                ({"provider_options": {key: "1"}}, f"'{key}' cannot be set in model package provider options")
                for key in ("cache_dir", "gpu_external_alloc", "user_compute_stream", "context_file_path")
            ),
        ],
    )
    def test_what_a_package_may_not_ask_for(self, ort: dict[str, Any], error: str, tmp_path: Path) -> None:
        with pytest.raises(InvalidArgument, match=error):
            intarsia.ModelPackageContext(package(tmp_path, {"v": variant(ort=ort)}))

    def test_an_entry_that_is_no_object(self, tmp_path: Path) -> None:
        root = package(tmp_path, {"v": {"executor_info": {"ort": "o.json"}}}, {"v/o.json": [1]})
        with pytest.raises(InvalidArgument, match="ORT variant configuration must be a JSON object for variant 'v'"):
            intarsia.ModelPackageContext(root)
        (tmp_path / "v" / "o.json").write_text("{")
        with pytest.raises(InvalidArgument, match=r"executor_info\['ort'\] of variant 'v' in 'o.json': JSON parse error"):
            intarsia.ModelPackage.open(root)


def test_importing_intarsia_does_not_load_it() -> None:
    script = "import sys, intarsia; sys.exit(any('model_package' in name for name in sys.modules))"
    subprocess.run([sys.executable, "-c", script], check=True)


class TestFilesOfCompiledParts:
    @pytest.fixture
    def compiler(self) -> Iterator[intarsia.ModelCompiler]:
        return intarsia.ModelCompiler(options(CPU), model(2.0))

    def test_where_they_are_put(self, compiler: intarsia.ModelCompiler, tmp_path: Path) -> None:
        compiler.set_ep_context_binary_information(tmp_path / "parts", "adder")
        data = compiler.compile_to_bytes()
        assert [path.name for path in (tmp_path / "parts").iterdir()] == ["adder_part0.bin"]
        loading = options(CPU)
        loading.add_session_config_entry("ep.context_file_path", str(tmp_path / "parts" / "adder.onnx"))
        np.testing.assert_array_equal(intarsia.InferenceSession(data, loading).run(None, {"x": X})[0], X + 2)

    def test_errors(self, compiler: intarsia.ModelCompiler, tmp_path: Path) -> None:
        (tmp_path / "f").write_text("")
        with pytest.raises(WrongType, match="expected a path and the name of a model, got 3 and 'm'"):
            compiler.set_ep_context_binary_information(3, "m")  # type: ignore[arg-type]
        for folder, name, error in (
            ("", "m", "output_directory or model_name is empty"),
            ("x", "", "output_directory or model_name is empty"),
            (tmp_path / "f", "m", "output_directory .*f' is a file"),
            ("x", "a/b", "model_name: expected a name, got 'a/b'"),
        ):
            with pytest.raises(InvalidArgument, match=error):
                compiler.set_ep_context_binary_information(folder, name)
