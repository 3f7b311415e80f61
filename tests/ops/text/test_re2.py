"""RegexFullMatch's patterns, in RE2's syntax: what each matches, as RE2 (by way of onnxruntime) has it."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import intarsia as ort
from intarsia.errors import InvalidGraph
from intarsia.ops.text import re2_automaton
from intarsia.ops.text.re2_match import Pattern, compiled
from intarsia.ops.text.re2_syntax import PatternError

WORDS = (
    "", "a", "abc", "ABC", "\u00e9", "\u00c9COLE", "12", "\u0663", "a1_", "a b", "a\tb", "a\nb", "\n", "\v", "stra\u00dfe",
    "\u212a", "K", "foo.bar", "x+y", "\u65e5\u672c", "\u03a9mega", "-",
    "A-Z", "\u00a0", "aa", "aaa", "ab12", "$", "^", "[", "]", "\\",
)  # fmt: skip
MATCHED = {
    r"\d+": ["12"],
    r"\w+": ["a", "abc", "ABC", "12", "a1_", "K", "aa", "aaa", "ab12"],
    r"\W+": ["\u00e9", "\u0663", "\n", "\v", "\u212a", "\u65e5\u672c", "-", "\u00a0", "$", "^", "[", "]", "\\"],
    r"\s": ["\n"],
    r"[[:alpha:]]+": ["a", "abc", "ABC", "K", "aa", "aaa"],
    r"[[:digit:][:upper:]]+": ["ABC", "12", "K"],
    r"[^[:^upper:]]+": ["ABC", "K"],
    r"\p{Lu}+": ["ABC", "\u00c9COLE", "\u212a", "K"],
    r"[\pL\d]+": [
        "a",
        "abc",
        "ABC",
        "\u00e9",
        "\u00c9COLE",
        "12",
        "stra\u00dfe",
        "\u212a",
        "K",
        "\u65e5\u672c",
        "\u03a9mega",
        "aa",
        "aaa",
        "ab12",
    ],
    r"\P{^N}+": ["12", "\u0663"],
    r"\Aabc\z": ["abc"],
    r"\Qx+y\E": ["x+y"],
    r"(?i)k": ["\u212a", "K"],
    r"(?i)[^k]": ["a", "\u00e9", "\u0663", "\n", "\v", "-", "\u00a0", "$", "^", "[", "]", "\\"],
    r"x|(?i)ABC|k": ["abc", "ABC", "\u212a", "K"],
    r"(?i:A)bc": ["abc"],
    r"(?i)a(?-i:b)c": ["abc"],
    r"a.b": ["a b", "a\tb"],
    r"(?s)a.b": ["a b", "a\tb", "a\nb"],
    r"(?m)^a$\n^b$": ["a\nb"],
    r"a$": ["a"],
    r"\x{65E5}\x{672C}": ["\u65e5\u672c"],
    r"\x61+|\0141b\143": ["a", "aa", "aaa"],
    r"\141bc": ["abc"],
    r"(?U)a{2,3}?": ["aa", "aaa"],
    r"a{,2}": [],
    r"(?P<n>a)(?<o>b)c": ["abc"],
    r"\bfoo\b.*": ["foo.bar"],
    r"a\Bb\Bc": ["abc"],
    r"[]a]+": ["a", "aa", "aaa", "]"],
    r"[^]a\w\s]": ["\u00e9", "\u0663", "\v", "\u212a", "-", "\u00a0", "$", "^", "[", "\\"],
    r"[A\-Z-]+": ["-", "A-Z"],
    r"[$^\\[]": ["$", "^", "[", "\\"],
    r"": [""],
    r"(?:a|b|)*": ["", "a", "aa", "aaa"],
}
REFUSED = {
    r"\p{Greek}": "'Greek' is no general category of Unicode",
    r"\C": r"the escape \\C is not supported",
    r"a++": "there is nothing to repeat at position 3",
    r"*a": "there is nothing to repeat at position",
    r"(a)\1": r"the escape \\1 is not supported",
    r"(?=a)": "a group begins with what RE2 does not know, at position 2",
    r"(?#note)": "a group begins with what RE2 does not know, at position 2",
    r"(a": "a group is not closed",
    r"a)": "a group is closed that was not opened, at position 1",
    r"[a": "it ends in the middle",
    "a\\": "it ends in the middle",
    r"[[:bogus:]]": r"there is no class \[:bogus:\]",
    r"[z-a]": "the range z-a is empty",
    r"[a-\d]": r"the escape \\d is not supported",
    r"a{1001}": r"the repetition '\{1001\}' is not one of at most 1000",
    r"a{3,2}": r"the repetition '\{3,2\}' is not one of at most 1000",
    r"\x{110000}": "0x110000 is no character",
    r"(?:a{100}){11}": "repetitions in repetitions are 1100 times, at position 14; at most 1000 may be",
    "(" * 1001 + ")" * 1001: "groups are nested over 1000 deep",
    r"(?:abcdefghijklmnopqrstuv|a){1000}": "it needs over 20,000 states",
}


def model(pattern: str) -> bytes:
    graph = helper.make_graph(
        [helper.make_node("RegexFullMatch", ["x"], ["y"], pattern=pattern)], "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.STRING, [None])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.BOOL, [None])],
    )  # fmt: skip
    found: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9).SerializeToString()
    return found


def matched(session: Any) -> list[str]:
    (y,) = session.run(None, {"x": np.array(WORDS, object)})
    return [word for word, match in zip(WORDS, y, strict=True) if match]


@pytest.mark.parametrize("pattern", MATCHED)
def test_patterns(pattern: str) -> None:
    assert matched(ort.InferenceSession(model(pattern))) == MATCHED[pattern]


@pytest.mark.parametrize("pattern", MATCHED)
def test_what_is_expected_is_what_re2_does(pattern: str) -> None:
    peer = pytest.importorskip("onnxruntime", reason="its RE2 is what is compared with")
    assert matched(peer.InferenceSession(model(pattern), providers=["CPUExecutionProvider"])) == MATCHED[pattern]


@pytest.mark.parametrize("pattern", REFUSED)
def test_what_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError, match=REFUSED[pattern]):
        compiled(pattern)


def test_the_error_names_the_pattern() -> None:
    with pytest.raises(InvalidGraph, match=r"pattern '\(a' is not a regular expression of RE2: a group is not closed"):
        ort.InferenceSession(model("(a"))


# Patterns that take an engine which goes back to other ways time that doubles with every character, or grows as its cube.
AMBIGUOUS = (
    r"(a*)*b", r"(a|a)*b", r"(a|aa)+$b", r"(?:a?){30}a{30}b", r"(.*)(.*)(.*)(.*)=", r"(\w+\s?)+:", r"(a+)+\b!", r"((a?b?)*)*c",
)  # fmt: skip


@pytest.mark.parametrize("pattern", AMBIGUOUS)
def test_time_grows_as_the_text(pattern: str) -> None:
    """Counted in states that are found, each once, and characters that are looked up; 20,000 of them would else never end."""
    found = compiled(pattern)
    text = "a" * 20_000
    assert not found.fullmatch(text)
    assert list(found.longest_matches(text)) == []
    assert sum(map(len, (found._automaton.forwards.known, found._automaton.backwards.known))) < 300


def test_states_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a pattern has more of them than are kept: here which of the last twelve characters were an a."""
    monkeypatch.setattr(re2_automaton, "_MOST_LOOKED_UP", 100)
    found = Pattern("(?:a|b)*a(?:a|b){11}")
    text = "".join(random.Random(0).choices("ab", k=5000))
    assert [bool(found.fullmatch(text[:n])) for n in range(12, 4000, 7)] == [text[n - 12] == "a" for n in range(12, 4000, 7)]
    assert len(found._automaton.forwards.known) <= 101


def test_patterns_that_python_serves() -> None:
    """One way at most to match any text: there is nothing to go back to."""
    for pattern in (r"[a-z]+@[a-z]+\.com", r"\d{4}-\d\d", r"(?:ab)*c?", r"", r"(?i)key=\w*;", r"a(?:b|c|)", r"\pL\d*"):
        assert isinstance(compiled(pattern).fullmatch.__self__, re.Pattern), pattern  # type: ignore[attr-defined]
    for pattern in (r"a*a", r"(?:a*)*", r"(?:|a)b", r"[a-z.]+\.com", r"a{1,2}a", r"(?:a|ab)c", r"(?i)[\x{e9}]"):
        assert not isinstance(compiled(pattern).fullmatch.__self__, re.Pattern), pattern  # type: ignore[attr-defined]
