"""WGSL with the type f64, as WGSL with two words in its place and calls of `float64_emulation` for its operators.

Schedules and elements write doubles as any other number, infix. On a device without the type the finished text is read again:
declarations say which names are doubles, and each expression is parsed (operator precedence) and written anew where it has one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from intarsia.codegen.clike.dialects.float64_emulation import literal
from intarsia.codegen.clike.int64_emulation import TYPE

_TOKEN = re.compile(
    r"\s*(?:(?P<number>0x[0-9a-fA-F]+u?|(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?(?:lf|li|lu|[fiuh])?)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign><<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^<>!~().,\[\]=:]))"
)
_TEMPLATES = frozenset("vec2 vec3 vec4 bitcast array".split())
_BINDING = {
    "||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 6, ">": 6, "<=": 6, ">=": 6, "<<": 7, ">>": 7, "+": 8,
    "-": 8, "*": 9, "/": 9, "%": 9,
}  # fmt: skip
_ARITHMETIC = {"+": "add_f64", "-": "sub_f64", "*": "mul_f64", "/": "div_f64"}
_COMPARE = {  # (function, swapped, negated)
    "==": ("eq_f64", False, False), "!=": ("eq_f64", False, True), "<": ("lt_f64", False, False), ">": ("lt_f64", True, False),
    "<=": ("le_f64", False, False), ">=": ("le_f64", True, False),
}  # fmt: skip
_OWN = frozenset("abs floor ceil trunc sqrt exp log tanh".split())
_DECLARED = re.compile(r"^(?P<head>(?:let|var) (?P<name>\w+))(?:: (?P<kind>[^=]+?))? = (?P<value>.*)$")
_ASSIGNED = re.compile(r"^(?P<target>\w+(?:\[.*?\])?) (?P<op>[-+*/]?)= (?P<value>[^=].*)$")
_GLOBAL = re.compile(r"\bvar(?:<[^>]*>)? (\w+): array<f64")
_FUNCTION = re.compile(r"^fn (\w+)\((.*)\) -> f64")
_PARAMETER = re.compile(r"\b(\w+): f64")

Typed = tuple[str, bool]
"""The text of an expression, and whether it is a double."""


class Unreadable(AssertionError):
    """A text that has doubles in a form that is not known here."""


def without_doubles(text: str) -> str:
    """A kernel's text in which no f64 is left."""
    names: set[str] = set()
    return "\n".join(_line(line, names) for line in text.split("\n"))


def _line(line: str, names: set[str]) -> str:
    body = line.lstrip()
    indent = line[: len(line) - len(body)]
    if body.startswith(("@", "fn ", "var<")):
        names |= set(_GLOBAL.findall(body))
        names |= set(_PARAMETER.findall(body)) if body.startswith("fn ") else set()
        if found := _FUNCTION.match(body):
            names.add(found[1])
        return re.sub(r"\bf64\b", TYPE, line)
    return indent + "".join(_piece(piece, names) for piece in _pieces(body))


def _pieces(line: str) -> Iterator[str]:
    """Statements and what stands between them: cut behind each brace, and each semicolon that is in no parentheses."""
    start = depth = 0
    for i, c in enumerate(line):
        depth += (c == "(") - (c == ")")
        if c in "{}" or (c == ";" and not depth):
            yield line[start:i]
            yield c
            start = i + 1
    yield line[start:]


def _piece(piece: str, names: set[str]) -> str:
    body = piece.strip()
    if not body or body.startswith("for ") or body in ("{", "}", ";", "else"):
        return piece
    return piece.replace(body, _statement(body, names))


def _statement(body: str, names: set[str]) -> str:
    for head in ("if ", "else if ", "return "):
        if body.startswith(head):
            return head + _Expression(body.removeprefix(head), names).whole()[0]
    if found := _DECLARED.match(body):
        kind = found["kind"]
        value, is_double = _Expression(found["value"], names).whole()
        (names.add if is_double else names.discard)(found["name"])
        if (kind == "f64") != is_double and kind is not None:
            raise Unreadable(body)
        return f"{found['head']}{': ' + (TYPE if is_double else kind) if kind else ''} = {value}"
    if found := _ASSIGNED.match(body):
        target, is_double = _Expression(found["target"], names).whole()
        value = _Expression(found["value"], names).whole()[0]
        if is_double and found["op"]:
            return f"{target} = {_ARITHMETIC[found['op']]}({target}, {value})"
        return f"{target} {found['op']}= {value}"
    if re.match(r"^var \w+: ", body):  # without a value
        names |= set(re.findall(r"^var (\w+): (?:array<)?f64", body))
        return re.sub(r"\bf64\b", TYPE, body)
    return body if re.match(r"^\w+$", body) else _Expression(body, names).whole()[0]


class _Expression:
    """One expression, parsed by the precedence of its operators."""

    def __init__(self, text: str, names: set[str]) -> None:
        self._text, self._names = text, names
        self._tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(text.rstrip()):
            found = _TOKEN.match(text, at)
            if found is None:
                raise Unreadable(text)
            self._tokens.append((str(found.lastgroup), found[str(found.lastgroup)]))
            at = found.end()
        self._at = 0

    def whole(self) -> Typed:
        found = self._binary(0)
        if self._at != len(self._tokens):
            raise Unreadable(self._text)
        return found

    def _peek(self) -> str:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else ""

    def _next(self, wanted: str = "") -> tuple[str, str]:
        if self._at >= len(self._tokens) or (wanted and self._peek() != wanted):
            raise Unreadable(self._text)
        self._at += 1
        return self._tokens[self._at - 1]

    def _binary(self, least: int) -> Typed:
        left, is_double = self._unary()
        while (binding := _BINDING.get(op := self._peek(), 0)) > least:
            self._next()
            right, right_double = self._binary(binding)
            if is_double != right_double:
                raise Unreadable(self._text)
            if not is_double:
                left = f"{left} {op} {right}"
            elif op in _ARITHMETIC:
                left = f"{_ARITHMETIC[op]}({left}, {right})"
            else:
                function, swapped, negated = _COMPARE[op]
                first, second = (right, left) if swapped else (left, right)
                left, is_double = f"{'!' * negated}{function}({first}, {second})", False
        return left, is_double

    def _unary(self) -> Typed:
        if (op := self._peek()) in ("-", "!", "~"):
            self._next()
            value, is_double = self._unary()
            return (f"neg_f64({value})", True) if is_double else (f"{op}{value}", False)
        return self._postfix(*self._primary())

    def _postfix(self, text: str, is_double: bool) -> Typed:
        while (op := self._peek()) in ("[", "."):
            self._next()
            if op == ".":
                text += f".{self._next()[1]}"
            else:
                text += f"[{self._binary(0)[0]}]"
                self._next("]")
        return text, is_double

    def _primary(self) -> Typed:
        kind, word = self._next()
        if word == "(":
            value, is_double = self._binary(0)
            self._next(")")
            return f"({value})", is_double
        if kind == "number":
            is_double = word.endswith("lf")
            return (literal(float(word.removesuffix("lf"))) if is_double else word), is_double
        if kind != "name":
            raise Unreadable(self._text)
        name = word
        if word in _TEMPLATES and self._peek() == "<":
            name += self._template()
        if self._peek() == "(":
            return self._call(name)
        return name, name in self._names

    def _template(self) -> str:
        text, depth = "", 0
        while not text or depth:
            word = self._next()[1]
            depth += word.count("<") - word.count(">")
            text += word
        return text

    def _call(self, name: str) -> Typed:
        self._next("(")
        given: list[Typed] = []
        while self._peek() != ")":
            given.append(self._binary(0))
            if self._peek() == ",":
                self._next()
        self._next(")")
        texts = ", ".join(text for text, _ in given)
        takes_double = bool(given) and given[0][1]
        if name in _OWN and takes_double:
            return f"{name}_f64({texts})", True
        makes = name in self._names or name.startswith("f64_") or (name == "select" and takes_double)
        known = makes or name == "bits_of_f64" or name.endswith(("_from_f64", "_put"))
        if any(is_double for _, is_double in given) and not known:
            raise Unreadable(f"{name} in {self._text}")
        return f"{name}({texts})", makes
