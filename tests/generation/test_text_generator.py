"""Texts of a small decoder: the tokens that NumPy says, in pieces, batches, conversations and by grammars."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

pytest.importorskip("tokenizers", reason="text generation needs tokenizers (the extra 'generate')")
pytest.importorskip("jinja2", reason="chat templates need jinja2 (the extra 'generate')")

from decoder_models import PLACES, TEMPLATE, WORDS, decoder, folder, likeliest, scores, tokenizer

import intarsia as ort
from intarsia import generation
from intarsia.generation.causal_decoder import CausalDecoder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder(tmp_path_factory.mktemp("models") / "small")


@pytest.fixture(scope="module")
def model(place: Path) -> generation.TextGenerator:
    return generation.load(place)


def ids(text: str) -> list[int]:
    return list(tokenizer().encode(text).ids)


def text(tokens: list[int]) -> str:
    return str(tokenizer().decode(tokens))


def test_scores_step_by_step(model: generation.TextGenerator) -> None:
    tokens = [5, 80, 200, 17, 9, 33]
    expected = scores(tokens)
    own = CausalDecoder(model.session)
    np.testing.assert_allclose(own.begin([tokens[:3]], last=False)[0], expected[:3], rtol=1e-4, atol=1e-4)
    for i in (3, 4, 5):
        np.testing.assert_allclose(own.advance(np.array([[tokens[i]]]))[0], expected[i], rtol=1e-4, atol=1e-4)
    fork = own.fork()
    own.rewind(3)
    np.testing.assert_allclose(own.advance(np.array([tokens[3:5]]), last=False)[0], expected[3:5], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(fork.advance(np.array([[7]]))[0], scores([*tokens, 7])[-1], rtol=1e-4, atol=1e-4)


def test_padded_rows_have_the_scores_of_their_own(model: generation.TextGenerator) -> None:
    prompts = [[5, 80, 200, 17], [9], [33, 4]]
    own = CausalDecoder(model.session)
    found = own.begin(prompts)
    for row, prompt in zip(found, prompts, strict=True):
        np.testing.assert_allclose(row, scores(prompt)[-1], rtol=1e-4, atol=1e-4)
    own.select_rows([2, 0])
    found = own.advance(np.array([[8], [6]]))
    for row, tokens in zip(found, ([33, 4, 8], [5, 80, 200, 17, 6]), strict=True):
        np.testing.assert_allclose(row, scores(tokens)[-1], rtol=1e-4, atol=1e-4)


def test_the_likeliest_tokens(model: generation.TextGenerator) -> None:
    prompt = ids("the quick brown")
    found = model.generate("the quick brown", max_new_tokens=12)
    expected = likeliest(prompt, 12, frozenset({0}))
    assert found.tokens == expected
    assert found.text == str(found) == text(expected)
    assert (found.finish_reason, found.prompt_tokens) == ("end" if expected[-1] == 0 else "length", len(prompt))
    assert 0 < found.first_token_s <= found.seconds
    assert model.generate(prompt, max_new_tokens=12).tokens == expected


def test_pieces_are_the_text(model: generation.TextGenerator) -> None:
    whole = model.generate("the lazy", max_new_tokens=20)
    into = generation.Generation()
    pieces = list(model.stream("the lazy", max_new_tokens=20, into=into))
    assert "".join(pieces) == whole.text == into.text

    async def collected() -> list[str]:
        return [piece async for piece in model.astream("the lazy", max_new_tokens=20)]

    assert asyncio.run(collected()) == pieces


def test_a_character_of_several_tokens_is_one_piece() -> None:
    from intarsia.generation.stop_texts import StopTexts
    from intarsia.generation.tokenizer import Tokenizer

    library = tokenizer()
    own = Tokenizer.__new__(Tokenizer)
    own.library = library
    tokens = library.encode("a\N{SLIGHTLY SMILING FACE}b").ids
    assert len(tokens) == 6
    text = StopTexts(own, ())
    assert [text.push(t, False)[0] for t in tokens] == ["a", "", "", "", "\N{SLIGHTLY SMILING FACE}", "b"]
    cut = StopTexts(own, ())
    assert [cut.push(t, False)[0] for t in tokens[:3]] == ["a", "", ""]
    assert cut.rest() == "\N{REPLACEMENT CHARACTER}"


def test_the_beginning_that_the_cache_has_is_not_run_again(place: Path) -> None:
    own = generation.load(place)
    first = own.generate("the quick brown fox", max_new_tokens=4)
    assert first.reused_tokens == 0
    longer = own.generate("the quick brown fox jumps", max_new_tokens=4)
    prompt = ids("the quick brown fox")
    shared = 0
    for a, b in zip([*prompt, *first.tokens[:-1]], ids("the quick brown fox jumps")[:-1], strict=False):
        if a != b:
            break
        shared += 1
    assert longer.reused_tokens == shared > 0
    assert longer.tokens == generation.load(place).generate("the quick brown fox jumps", max_new_tokens=4).tokens
    again = own.generate("the quick brown fox", max_new_tokens=4)
    assert again.tokens == first.tokens
    assert again.reused_tokens == len(prompt) - 1


def test_a_batch_is_what_each_alone_is(model: generation.TextGenerator) -> None:
    prompts = ["the quick brown fox", "on", "and on it goes"]
    found = model.generate(prompts, max_new_tokens=10)
    assert [g.text for g in found] == [model.generate(p, max_new_tokens=10).text for p in prompts]
    assert [g.prompt_tokens for g in found] == [len(ids(p)) for p in prompts]
    assert model.generate([]) == []


def test_a_text_of_stop_ends_it_and_is_not_given(model: generation.TextGenerator) -> None:
    whole = model.generate("the dog", max_new_tokens=20)
    stop = whole.text[4:7]
    found = model.generate("the dog", max_new_tokens=20, stop=[stop, "never there"])
    assert found.text == whole.text[: whole.text.index(stop)]
    assert found.finish_reason == "stop"
    assert "".join(model.stream("the dog", max_new_tokens=20, stop=stop)) == found.text


def test_a_draw_is_its_seed(model: generation.TextGenerator) -> None:
    options: dict[str, Any] = {"temperature": 1.0, "top_k": 50, "top_p": 0.95, "min_p": 0.01, "max_new_tokens": 16}
    first, again, other = (model.generate("fox", seed=seed, **options).tokens for seed in (1, 1, 2))
    assert first == again != other


def test_conversations(model: generation.TextGenerator) -> None:
    messages = [{"role": "user", "content": "the fox"}]
    assert model.chat_prompt(messages) == "user: the fox\nassistant:"
    found = model.chat(messages, max_new_tokens=5)
    assert found.tokens == model.generate(ids("user: the fox\nassistant:"), max_new_tokens=5).tokens
    assert "".join(model.chat_stream(messages, max_new_tokens=5)) == found.text


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (None, "has no chat template"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{% for m in %}", "cannot be rendered"),
        ("{{ messages.__class__.__mro__ }}", "cannot be rendered"),
        ("{{ messages.append(1) }}", "cannot be rendered"),
        ("{{ 1 + 'a' }}", "cannot be rendered"),
        ("{{ 1 / 0 }}", "cannot be rendered"),
        ("{{ strftime_now(5) }}", "cannot be rendered"),
        ("{% for i in range(999) %}{% for j in range(999) %}{% endfor %}{% endfor %}", "counts to more than"),
        ("{% for i in range(10 ** 9) %}{% endfor %}", "counts to more than"),
    ],
)
def test_templates_that_refuse(template: str | None, message: str, tmp_path: Path) -> None:
    own = generation.load(folder(tmp_path, tokenizer_config__json={"chat_template": template}))
    with pytest.raises(ort.InvalidArgument, match=message):
        own.chat([{"role": "user", "content": "x"}])


@pytest.mark.parametrize(
    "template", ["{{ messages | tojson }}", "{% for m in messages %}{% break %}{% endfor %}{{ strftime_now('%Y') }}"]
)
def test_what_templates_may_use(template: str, tmp_path: Path) -> None:
    own = generation.load(folder(tmp_path, tokenizer_config__json={"chat_template": template}))
    assert own.chat_prompt([{"role": "user", "content": "é"}]).startswith(('[{"role": "user", "content": "é"}]', "20"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_new_token": 3}, "'max_new_token' is no setting.*max_new_tokens"),
        ({"max_new_tokens": 0}, "max_new_tokens: expected at least 1"),
        ({"temperature": -1}, "temperature: expected at least 0"),
        ({"top_p": 0}, "top_p: expected above 0"),
        ({"stop": [""]}, "stop: expected texts"),
        ({"regex": "a", "grammar": "b"}, "expected one of json_schema"),
        ({"temperature": "hot"}, "temperature: expected a number, got 'hot'"),
        ({"temperature": float("nan")}, "temperature: expected a finite number"),
        ({"max_new_tokens": 2.5}, "max_new_tokens: expected a whole number"),
        ({"num_beams": 2.5}, "num_beams: expected a whole number"),
        ({"seed": -1}, "seed: expected at least 0"),
        ({"seed": "abc"}, "seed: expected a whole number"),
        ({"stop": 5}, "stop: expected a text or a list"),
        ({"json_schema": 5}, "json_schema: expected a JSON schema"),
        ({"regex": 5}, "regex: expected a text"),
    ],
)
def test_settings_that_make_no_sense(options: dict[str, Any], message: str, model: generation.TextGenerator) -> None:
    with pytest.raises(ort.InvalidArgument, match=message):
        model.generate("x", **options)


def test_prompts_that_do_not_fit(model: generation.TextGenerator) -> None:
    with pytest.raises(ort.InvalidArgument, match="the prompt is empty"):
        model.generate("")
    with pytest.raises(ort.InvalidArgument, match=f"has {PLACES} tokens, at most {PLACES - 1} fit"):
        model.generate([1] * PLACES)
    found = model.generate([1] * (PLACES - 3), max_new_tokens=50)
    assert len(found.tokens) <= 3
    assert found.finish_reason in ("length", "end")


@pytest.mark.parametrize("prompt", [None, 5, {}, [1.5], [1, 2, "a"], [-1], "\ud800"])
def test_what_is_no_prompt(prompt: Any, model: generation.TextGenerator) -> None:
    with pytest.raises(ort.InvalidArgument, match="the prompt"):
        model.generate(prompt)


@pytest.mark.parametrize("messages", ["hi", [1], {"role": "user", "content": "x"}, [{"content": "x"}]])
def test_what_is_no_conversation(messages: Any, model: generation.TextGenerator) -> None:
    with pytest.raises(ort.InvalidArgument, match="messages: expected a list of dicts"):
        model.chat(messages)


def test_calls_that_overlap_have_caches_of_their_own(model: generation.TextGenerator) -> None:
    expected = model.generate("the quick", max_new_tokens=8).text
    pieces = model.stream("the quick", max_new_tokens=8)
    first = next(pieces)
    other = model.generate("jumps over", max_new_tokens=3)
    assert other.tokens == model.generate("jumps over", max_new_tokens=3).tokens
    assert first + "".join(pieces) == expected
    prompts = ["the quick", "jumps over", "and on it goes", "ever"] * 3
    alone = [model.generate(p, max_new_tokens=5, guesses=2).tokens for p in prompts]
    with ThreadPoolExecutor(4) as pool:
        assert [g.tokens for g in pool.map(lambda p: model.generate(p, max_new_tokens=5, guesses=2), prompts)] == alone


def test_settings_of_the_model_are_the_defaults(tmp_path: Path) -> None:
    own = generation.load(
        folder(tmp_path, generation_config__json={"do_sample": True, "temperature": 0.7, "top_k": 5, "eos_token_id": [3, 4]})
    )
    options = own._options({})
    assert (options.temperature, options.top_k) == (0.7, 5)
    assert own._options({"do_sample": False}).temperature == 0
    beams = generation.load(folder(tmp_path, generation_config__json={"num_beams": 4}))
    assert "".join(beams.stream("fox", max_new_tokens=3)) == beams.generate("fox", max_new_tokens=3).text
    assert own.end_tokens == {3, 4}


def test_a_folder_of_onnxruntime_genai(tmp_path: Path) -> None:
    place = folder(
        tmp_path,
        config__json=None,
        genai_config__json={
            "model": {"context_length": 32, "eos_token_id": 0, "decoder": {"filename": "renamed.onnx"}},
            "search": {"do_sample": False, "top_k": 1, "max_length": 32, "past_present_share_buffer": True},
        },
    )
    (place / "model.onnx").rename(place / "renamed.onnx")
    own = generation.load(place)
    assert (own.max_length, own.end_tokens) == (32, {0})
    assert own.generate([5, 6], max_new_tokens=4).tokens == likeliest([5, 6], 4, frozenset({0}))


def test_a_folder_of_transformers_js(tmp_path: Path) -> None:
    place = folder(tmp_path)
    (place / "onnx").mkdir()
    (place / "model.onnx").rename(place / "onnx" / "model_q4.onnx")
    (place / "chat_template.jinja").write_text(TEMPLATE.replace("assistant", "answer"), encoding="utf-8")
    own = generation.load(place)
    assert own.generate([5, 6], max_new_tokens=2).tokens == likeliest([5, 6], 2, frozenset({0}))
    assert own.chat_prompt([]).endswith("answer:")
    assert generation.load(place / "onnx" / "model_q4.onnx").folder.path == place


def test_folders_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ort.NoSuchFile, match="no such folder"):
        generation.load(tmp_path / "none")
    with pytest.raises(ort.NoSuchFile, match=r"expected a decoder.*no \.onnx files"):
        generation.load(tmp_path)
    place = folder(tmp_path / "x")
    with pytest.raises(ort.NoSuchFile, match=r"no file 'other\.onnx'; it has \['model\.onnx'\]"):
        generation.load(place, file="other.onnx")
    (place / "config.json").write_text("{")
    with pytest.raises(ort.InvalidArgument, match=r"config\.json: expected JSON"):
        generation.load(place)
    (place / "config.json").unlink()
    (place / "tokenizer.json").write_text("{}")
    with pytest.raises(ort.InvalidArgument, match="the tokenizers library cannot read it"):
        generation.load(place)
    (place / "tokenizer.json").unlink()
    own = generation.load(place)
    with pytest.raises(ort.InvalidArgument, match=r"has no tokenizer\.json: give lists of tokens"):
        own.generate("text")
    assert own.generate([5], max_new_tokens=3).tokens == likeliest([5], 3)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", {"text_config": []}, "'text_config': expected an object"),
        ("config.json", {"max_position_embeddings": "abc"}, "number of positions"),
        ("config.json", {"eos_token_id": [[1]]}, "eos_token_id: expected"),
        ("config.json", {"eos_token_id": "2"}, "eos_token_id: expected"),
        ("genai_config.json", {"model": []}, "'model': expected an object"),
        ("genai_config.json", {"model": {"decoder": 5}}, "'decoder': expected an object"),
        ("genai_config.json", {"model": {"decoder": {"filename": 5}}}, "filename: expected that of a file"),
        ("genai_config.json", {"model": {"decoder": {"filename": "../x.onnx"}}}, "filename: expected that of a file"),
        ("genai_config.json", {"search": [1]}, "'search': expected an object"),
        ("tokenizer_config.json", {"chat_template": 5}, "chat_template: expected a text"),
        ("config.json", [], "expected an object, got list"),
    ],
)
def test_configurations_of_other_types(name: str, content: Any, message: str, tmp_path: Path) -> None:
    place = folder(tmp_path)
    (place / name).write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ort.InvalidArgument, match=message):
        generation.load(place)


def test_configurations_that_cannot_be_read(tmp_path: Path) -> None:
    place = folder(tmp_path)
    (place / "generation_config.json").write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(ort.InvalidArgument, match=r"generation_config\.json: expected JSON"):
        generation.load(place)
    (place / "generation_config.json").write_text(json.dumps({"temperature": "hot", "do_sample": True}), encoding="utf-8")
    with pytest.raises(ort.InvalidArgument, match="temperature: expected a number"):
        generation.load(place).generate("x")
    (place / "chat_template.jinja").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ort.InvalidArgument, match="expected a text in UTF-8"):
        generation.load(place)


def test_models_that_are_no_decoders(tmp_path: Path) -> None:
    plain = onnx.parser.parse_model('<ir_version: 9, opset_import: ["" : 18]> g (float[2] x) => (float[2] y) { y = Relu(x) }')
    with pytest.raises(ort.InvalidArgument, match="no output looks like the next value"):
        CausalDecoder(ort.InferenceSession(plain.SerializeToString()))
    named = decoder()
    for value in named.graph.input:
        value.name = "mystery" if value.name == "position_ids" else value.name
    for node in named.graph.node:
        node.input[:] = ["mystery" if n == "position_ids" else n for n in node.input]
    with pytest.raises(ort.InvalidArgument, match=r"'mystery'.*is not known.*fixed="):
        CausalDecoder(ort.InferenceSession(named.SerializeToString()))


class TestGrammars:
    """By llguidance."""

    @pytest.fixture(autouse=True)
    def _library(self) -> None:
        pytest.importorskip("llguidance", reason="grammars need llguidance (the extra 'generate')")

    def test_an_expression(self, model: generation.TextGenerator) -> None:
        found = model.generate("the", regex="[0-9]{3}-[ab]", max_new_tokens=20, temperature=1.0, seed=4)
        assert len(found.text) == 5
        assert found.text[:3].isdigit()
        assert found.text[3:] in ("-a", "-b")
        assert found.finish_reason == "end"

    def test_a_schema(self, model: generation.TextGenerator) -> None:
        schema = {
            "type": "object", "properties": {"n": {"type": "integer", "maximum": 99, "minimum": 0}, "ok": {"type": "boolean"}},
            "required": ["n", "ok"], "additionalProperties": False,
        }  # fmt: skip
        for seed in range(3):
            found = model.generate("fox", json_schema=schema, max_new_tokens=200, temperature=1.0, seed=seed)
            said = json.loads(found.text)
            assert set(said) == {"n", "ok"}
            assert 0 <= said["n"] <= 99
            assert isinstance(said["ok"], bool)

    def test_a_grammar_in_a_batch(self, model: generation.TextGenerator) -> None:
        found = model.generate(["the", "quick brown"], grammar='start: "yes" | "no"', max_new_tokens=10)
        assert all(g.text in ("yes", "no") for g in found)

    def test_an_expression_is_worth_more_than_a_least_number(self, model: generation.TextGenerator) -> None:
        for temperature in (0, 1.0):
            found = model.generate("the", regex="[0-9]{2}", min_new_tokens=6, max_new_tokens=20, temperature=temperature)
            assert len(found.text) == 2
            assert found.finish_reason == "end"

    @pytest.mark.parametrize("options", [{"regex": "a{1000000}"}, {"json_schema": {"$ref": "#"}}, {"grammar": "start: start"}])
    def test_grammars_that_fail_while_text_is_generated(self, options: dict[str, Any], model: generation.TextGenerator) -> None:
        with pytest.raises(ort.InvalidArgument, match=r"the text cannot follow this grammar|no token may come"):
            model.generate("the", max_new_tokens=20, **options)

    @pytest.mark.parametrize("options", [{"regex": "["}, {"json_schema": {"type": 3}}, {"grammar": "start: nothing"}])
    def test_what_is_no_grammar(self, options: dict[str, Any], model: generation.TextGenerator) -> None:
        with pytest.raises(ort.InvalidArgument, match="the text cannot follow this grammar"):
            model.generate("the", **options)


def test_the_vocabulary_is_that_of_the_decoder() -> None:
    assert tokenizer().get_vocab_size() == WORDS
