"""`intarsia generate` and `intarsia chat` on a small decoder."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tokenizers", reason="text generation needs tokenizers (the extra 'generate')")
pytest.importorskip("jinja2", reason="chat templates need jinja2 (the extra 'generate')")

sys.path.append(str(Path(__file__).parents[1] / "generation"))
from decoder_models import folder

from intarsia import generation


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder(tmp_path_factory.mktemp("cli") / "small")


def command(*arguments: object, said: str = "") -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "intarsia", *map(str, arguments)]
    return subprocess.run(line, input=said, capture_output=True, text=True, check=False)


def test_text_as_the_library_has_it(place: Path) -> None:
    expected = generation.load(place).generate("the fox", max_new_tokens=8, temperature=0.9, seed=3, stop=["zz"])
    found = command("generate", place, "the fox", "-n", 8, "-s", "temperature=0.9", "-s", "seed=3", "-s", "stop=zz")
    assert found.stdout.rstrip("\n") == expected.text.rstrip("\n"), found.stderr
    assert "tokens before; first token after" in found.stderr
    told = json.loads(command("generate", place, "-", "-n", 4, "--json", said="the fox").stdout)
    assert told["tokens"] == generation.load(place).generate("the fox", max_new_tokens=4).tokens
    assert told["finish_reason"] in ("length", "end")


def test_a_conversation(place: Path) -> None:
    model = generation.load(place)
    messages = [{"role": "system", "content": "be short"}, {"role": "user", "content": "fox"}]
    first = model.chat(messages, max_new_tokens=4)
    messages += [{"role": "assistant", "content": first.text}, {"role": "user", "content": "dog"}]
    second = model.chat(messages, max_new_tokens=4)
    found = command("chat", place, "--system", "be short", "-n", 4, said="fox\ndog\n/reset\nfox\n/exit\nnever\n")
    assert found.stdout == f"{first.text}\n{second.text}\n{first.text}\n", found.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["generate", "none", "x"], "no such folder"),
        (["generate", "PLACE", "x", "-s", "temperature"], "expected NAME=VALUE"),
        (["generate", "PLACE", "x", "-s", "temperature=hot"], "temperature: expected a number, got 'hot'"),
        (["generate", "PLACE", "x", "-s", "seed=-1"], "seed: expected at least 0"),
        (["generate", "PLACE", "x", "-s", "max_new_tokens=3"], "use --max-new-tokens"),
        (["generate", "PLACE", "x", "-s", "temprature=1"], "is no setting of a generation; did you mean 'temperature'"),
    ],
)
def test_errors(arguments: list[str], message: str, place: Path) -> None:
    found = command(*(str(place) if a == "PLACE" else a for a in arguments))
    assert found.returncode in (1, 2)
    assert message in found.stderr.replace("\n", " ")
    assert "Traceback" not in found.stderr


def test_a_model_without_a_template(tmp_path: Path) -> None:
    found = command("chat", folder(tmp_path, tokenizer_config__json={}), said="x\n")
    assert found.returncode in (1, 2)
    assert "has no chat template" in found.stderr
