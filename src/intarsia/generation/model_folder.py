"""What lies in the folder of an exported language model: as optimum, onnxruntime-genai and transformers.js write it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intarsia.errors import InvalidArgument, NoSuchFile
from intarsia.lazy_dataclass import dataclass

if TYPE_CHECKING:
    import os

_DECODERS = (
    "model.onnx", "decoder_model_merged.onnx", "decoder_with_past_model.onnx", "decoder_model.onnx",
)  # fmt: skip
_QUANTISED = ("q4f16", "q4", "int8", "quantized", "uint8", "bnb4", "fp16")
"""Endings of transformers.js for smaller weights of the same model, best first."""


@dataclass(frozen=True)
class ModelFolder:
    """The files and settings of one language model.

    Attributes:
        path: the folder.
        decoder: the file of the decoder with a cache.
        config: `config.json` (the architecture), {} where there is none.
        search: defaults of the search, under the names of transformers' `generation_config.json`.
        tokenizer: `tokenizer.json`, or None.
        tokenizer_config: `tokenizer_config.json`, {} where there is none.
        chat_template: the template of conversations (jinja), or None.
        end_tokens: numbers of the tokens that end a text.
        context_length: how many tokens the model was made for, or None.
    """

    path: Path
    decoder: Path
    config: Mapping[str, Any]
    search: Mapping[str, Any]
    tokenizer: Path | None
    tokenizer_config: Mapping[str, Any]
    chat_template: str | None
    end_tokens: frozenset[int]
    context_length: int | None


def read_folder(path: str | os.PathLike[str], file: str | None = None) -> ModelFolder:
    """Look at a folder, or at that of a model file.

    Args:
        path: the folder, or the decoder's file in it.
        file: the decoder's file, relative to the folder, where several would do.

    Raises:
        NoSuchFile: there is no such folder, or no decoder in it.
        InvalidArgument: a configuration file is not JSON.
    """
    given = Path(path)
    if given.is_file():
        folder, file = given.parent, given.name
        folder = folder.parent if folder.name == "onnx" and not (folder / "config.json").exists() else folder
        decoder: Path | None = given
    else:
        if not given.is_dir():
            raise NoSuchFile(f"{given}: there is no such folder or model file")
        folder, decoder = given, None
    genai, config = _json(folder / "genai_config.json"), _json(folder / "config.json")
    model = _part(genai, "model", "genai_config.json")
    if decoder is None:
        decoder = _decoder(folder, file, _part(model, "decoder", "genai_config.json").get("filename"))
    search = {**_json(folder / "generation_config.json"), **_genai_search(_part(genai, "search", "genai_config.json"))}
    tokenizer, tokenizer_config = folder / "tokenizer.json", _json(folder / "tokenizer_config.json")
    text_config = {**config, **_part(config, "text_config", "config.json")}
    return ModelFolder(
        folder,
        decoder,
        config,
        search,
        tokenizer if tokenizer.exists() else None,
        tokenizer_config,
        _chat_template(folder, tokenizer_config),
        _end_tokens(search, model, text_config),
        _context_length(model, text_config),
    )


def _part(settings: Mapping[str, Any], name: str, file: str) -> Mapping[str, Any]:
    """An object inside of a configuration; {} where there is none."""
    found = settings.get(name)
    if found is not None and not isinstance(found, Mapping):
        raise InvalidArgument(f"{file}: {name!r}: expected an object, got {type(found).__name__}")
    return found or {}


def _context_length(model: Mapping[str, Any], text_config: Mapping[str, Any]) -> int | None:
    found = model.get("context_length") or text_config.get("max_position_embeddings") or text_config.get("n_positions")
    if found is not None and (isinstance(found, bool) or not isinstance(found, int) or found < 1):
        raise InvalidArgument(f"the number of positions (max_position_embeddings): expected a number, got {found!r}")
    return found


def _json(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise InvalidArgument(f"{path}: expected JSON: {error}") from error
    if not isinstance(found, dict):
        raise InvalidArgument(f"{path}: expected an object, got {type(found).__name__}")
    return found


def _decoder(folder: Path, file: str | None, configured: Any) -> Path:
    if configured is not None and (not isinstance(configured, str) or Path(configured).name != configured):
        expected = "expected that of a file in the folder"
        raise InvalidArgument(f"genai_config.json: the decoder's filename: {expected}, got {configured!r}")
    named = file or configured
    if named:
        for place in (folder, folder / "onnx"):
            if (place / named).is_file():
                return place / named
        raise NoSuchFile(f"{folder}: there is no file {named!r}; it has {_models(folder) or 'no .onnx files'}")
    for place in (folder, folder / "onnx"):
        for name in _DECODERS:
            for each in (name, *(name.replace(".onnx", f"_{ending}.onnx") for ending in _QUANTISED)):
                if (place / each).is_file():
                    return place / each
    found = [p for place in (folder, folder / "onnx") for p in sorted(place.glob("*.onnx"))]
    if len(found) == 1:
        return found[0]
    raise NoSuchFile(
        f"{folder}: expected a decoder ({', '.join(_DECODERS)}, or genai_config.json that names one); it has "
        f"{_models(folder) or 'no .onnx files'}: say which by file=..."
    )


def _models(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.glob("**/*.onnx"))


def _genai_search(search: Mapping[str, Any]) -> dict[str, Any]:
    """onnxruntime-genai's settings, which have transformers' names. Its `max_length` is the room of the cache."""
    return {name: value for name, value in search.items() if name not in ("max_length", "past_present_share_buffer")}


def _end_tokens(*settings: Mapping[str, Any]) -> frozenset[int]:
    for each in settings:
        found = each.get("eos_token_id")
        if found is not None:
            listed = found if isinstance(found, list) else [found]
            if any(isinstance(t, bool) or not isinstance(t, int) for t in listed):
                raise InvalidArgument(f"eos_token_id: expected a token's number or a list of such, got {found!r}")
            return frozenset(listed)
    return frozenset()


def _chat_template(folder: Path, tokenizer_config: Mapping[str, Any]) -> str | None:
    jinja = folder / "chat_template.jinja"
    if jinja.exists():
        try:
            return jinja.read_text(encoding="utf-8")
        except (UnicodeError, OSError) as error:
            raise InvalidArgument(f"{jinja}: expected a text in UTF-8: {error}") from error
    found = {**tokenizer_config, **_json(folder / "chat_template.json")}.get("chat_template")
    if isinstance(found, list):  # several, by name
        by_name = {each.get("name"): each.get("template") for each in found if isinstance(each, Mapping)}
        found = by_name.get("default", next(iter(by_name.values()), None))
    if found is not None and not isinstance(found, str):
        raise InvalidArgument(f"chat_template: expected a text, got {type(found).__name__}")
    return found
