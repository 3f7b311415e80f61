"""What a module of LLVM IR is made of, each with its text: types, values, blocks of lines, functions, metadata.

`codegen.llvm.ir_builder` has the builder, and all of these names.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator, Sequence
from typing import Any, Self, TypeVar

# --- types ---


class Type:
    """A type, one object for each: types are equal where they are the same object.

    Attributes:
        text: its name in LLVM's language.
        width: an integer's bits, 0 for other types.
    """

    __slots__ = ("text",)
    text: str
    width = 0

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<type {self.text}>"

    def __call__(self, value: Any) -> Value:
        """A constant of the type."""
        return Constant(self, value)

    def constant(self, value: Any) -> str:
        """A constant's text, without its type."""
        raise TypeError(f"there is no constant {value!r} of type {self.text}")


_known: dict[object, Any] = {}
_T = TypeVar("_T", bound="Type")


def _one(kind: type[_T], *arguments: Any) -> _T:
    key = (kind, *arguments)
    found: _T | None = _known.get(key)
    if found is None:
        found = _known[key] = object.__new__(kind)
    return found


class IntType(Type):
    __slots__ = ("width",)

    def __new__(cls, width: int) -> Self:
        return _one(cls, width)

    def __init__(self, width: int) -> None:
        self.width, self.text = width, f"i{width}"

    def constant(self, value: Any) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value)


class _Single(Type):
    """A type without parameters."""

    __slots__ = ()
    name = ""

    def __new__(cls) -> Self:
        return _one(cls)

    def __init__(self) -> None:
        self.text = self.name


class VoidType(_Single):
    __slots__ = ()
    name = "void"


class PointerType(_Single):
    __slots__ = ()
    name = "ptr"


class _Float(_Single):
    """Constants are written as the bits of a float64 that the type can hold."""

    __slots__ = ()
    code = "d"

    def constant(self, value: Any) -> str:
        try:
            (rounded,) = struct.unpack(self.code, struct.pack(self.code, value))
        except OverflowError:  # of a number that rounds to infinity
            rounded = float("inf") if value > 0 else float("-inf")
        return "0x" + struct.pack(">d", rounded).hex()


class HalfType(_Float):
    __slots__ = ()
    name, code = "half", "e"


class BFloatType(_Single):
    """For operands of instructions only: numbers are written and computed as integers (`emitter.storage_type`)."""

    __slots__ = ()
    name = "bfloat"


class FloatType(_Float):
    __slots__ = ()
    name, code = "float", "f"


class DoubleType(_Float):
    __slots__ = ()
    name = "double"


class _Many(Type):
    """`count` elements of one type."""

    __slots__ = ("count", "element")
    form, ends = "", ""

    def __new__(cls, element: Type, count: int) -> Self:
        return _one(cls, element, count)

    def __init__(self, element: Type, count: int) -> None:
        self.element, self.count, self.text = element, count, self.form.format(count, element.text)

    def constant(self, value: Any) -> str:
        if isinstance(value, bytes | bytearray):
            return 'c"' + "".join(f"\\{byte:02x}" for byte in value) + '"'
        texts = [x.ref if isinstance(x, Constant) else self.element.constant(x) for x in value]
        if len(texts) != self.count:
            raise TypeError(f"a constant of type {self.text} needs {self.count} elements; got {len(texts)}")
        return self.ends[0] + ", ".join([f"{self.element.text} {text}" for text in texts]) + self.ends[1]


class VectorType(_Many):
    __slots__ = ()
    form, ends = "<{} x {}>", "<>"

    def constant(self, value: Any) -> str:
        first = value[0]
        if len(value) != self.count or any(x is not first for x in value):
            return super().constant(value)
        text = first.ref if isinstance(first, Constant) else self.element.constant(first)
        return f"splat ({self.element.text} {text})"


class ArrayType(_Many):
    __slots__ = ()
    form, ends = "[{} x {}]", "[]"


class StructType(Type):
    __slots__ = ("elements",)

    def __new__(cls, *elements: Type) -> Self:
        return _one(cls, *elements)

    def __init__(self, *elements: Type) -> None:
        self.elements, self.text = elements, "{" + ", ".join([e.text for e in elements]) + "}"


class FunctionType:
    __slots__ = ("args", "return_type")

    def __init__(self, return_type: Type, args: Sequence[Type]) -> None:
        self.return_type, self.args = return_type, tuple(args)


_POINTER = PointerType()


@functools.cache
def overload(kind: Type) -> str:
    """A type in the name of an intrinsic that is overloaded on it."""
    if isinstance(kind, VectorType):
        return f"v{kind.count}{overload(kind.element)}"
    return {"float": "f32", "double": "f64", "half": "f16", "ptr": "p0"}.get(kind.text, kind.text)


# --- values ---


class Value:
    """Something with a type; `ref` is its name where it is used."""

    __slots__ = ("ref", "type")

    def __init__(self, kind: Type, ref: str) -> None:
        self.type, self.ref = kind, ref

    def __str__(self) -> str:
        return f"{self.type.text} {self.ref}"


class _Undefined:
    def __repr__(self) -> str:
        return "Undefined"


Undefined = _Undefined()


class Constant(Value):
    """A constant: a number, a sequence of numbers or constants, bytes (of an array), or Undefined."""

    __slots__ = ()

    def __init__(self, kind: Type, value: Any) -> None:
        self.type = kind
        self.ref = "undef" if value is Undefined else kind.constant(value)


class Literal(Constant):
    """A constant by its text: "zeroinitializer", "poison"."""

    __slots__ = ()

    def __init__(self, kind: Type, text: str) -> None:
        self.type, self.ref = kind, text


class Argument(Value):
    __slots__ = ("attributes",)

    def __init__(self, kind: Type, ref: str) -> None:
        super().__init__(kind, ref)
        self.attributes: list[str] = []

    def add_attribute(self, name: str) -> None:
        self.attributes.append(name)


class Phi(Value):
    """A value by the block that control came from; `add_incoming` for each before the module is printed."""

    __slots__ = ("_incoming",)

    def __init__(self, kind: Type, ref: str) -> None:
        super().__init__(kind, ref)
        self._incoming: list[str] = []

    def add_incoming(self, value: Value, block: Block) -> None:
        self._incoming.append(f"[{value.ref}, {block.ref}]")

    def line(self) -> str:
        return f"  {self.ref} = phi {self.type.text} {', '.join(self._incoming)}"


class Switch:
    """A jump by an integer's value; `add_case` before the module is printed."""

    __slots__ = ("_cases", "_default", "_value")

    def __init__(self, value: Value, default: Block) -> None:
        self._value, self._default, self._cases = value, default, list[str]()

    def add_case(self, number: int, block: Block) -> None:
        self._cases.append(f"{self._value.type.text} {number}, label {block.ref}")

    def line(self) -> str:
        return f"  switch {self._value}, label {self._default.ref} [{' '.join(self._cases)}]"


class Block:
    """Lines of a function that end with a jump or a return."""

    __slots__ = ("function", "lines", "name", "ref", "terminated")

    def __init__(self, function: Function, name: str) -> None:
        self.function, self.name, self.ref = function, name, f'%"{name}"'
        self.lines: list[str | Phi | Switch] = []
        self.terminated = False


class GlobalVariable(Value):
    """Memory of the module."""

    __slots__ = ("_kind", "_name", "align", "global_constant", "initializer", "linkage")

    def __init__(self, module: Module, kind: Type, name: str) -> None:
        super().__init__(_POINTER, f'@"{name}"')
        self._kind, self._name = kind, name
        self.linkage, self.global_constant, self.align = "", False, 0
        self.initializer: Constant | None = None
        module.globals[name] = self

    def lines(self) -> Iterator[str]:
        content = self.initializer.ref if self.initializer is not None else "undef"
        kind = "constant" if self.global_constant else "global"
        aligned = f", align {self.align}" if self.align else ""
        yield f"{self.ref} = {self.linkage} {kind} {self._kind.text} {content}{aligned}"


class Function(Value):
    """A function; without blocks a declaration."""

    __slots__ = ("_names", "args", "attributes", "blocks", "count", "function_type", "linkage", "module")

    def __init__(self, module: Module, function_type: FunctionType, name: str) -> None:
        super().__init__(_POINTER, f'@"{name}"')
        self.module, self.function_type = module, function_type
        self.linkage = ""
        self.attributes: set[str] = set()
        self.blocks: list[Block] = []
        self.args = tuple(Argument(kind, f"%a{i}") for i, kind in enumerate(function_type.args))
        self.count = 0  # of the values that have names
        self._names: dict[str, int] = {}
        module.globals[name] = self

    def append_basic_block(self, name: str = "") -> Block:
        number = self._names[name] = self._names.get(name, -1) + 1
        block = Block(self, f"{name}.{number}" if number or not name else name)
        self.blocks.append(block)
        return block

    def lines(self) -> Iterator[str]:
        head = ["define" if self.blocks else "declare", *([self.linkage] if self.linkage else [])]
        args = ", ".join([" ".join([a.type.text, *a.attributes, *([a.ref] if self.blocks else [])]) for a in self.args])
        tail = [f"{self.ref}({args})", *sorted(self.attributes)]
        yield " ".join([*head, self.function_type.return_type.text, *tail])
        if not self.blocks:
            return
        yield "{"
        for block in self.blocks:
            yield f'"{block.name}":'
            for line in block.lines:
                yield line if isinstance(line, str) else line.line()
        yield "}"


class Module:
    """Functions and variables by name, and metadata."""

    def __init__(self, name: str = "kernel") -> None:
        self.name, self.triple = name, ""
        self.globals: dict[str, Any] = {}  # functions and variables
        self._nodes: dict[str, str] = {}  # metadata by its text

    def node(self, content: str) -> str:
        """The name of a metadata node, made once for each content."""
        return self._nodes.setdefault(content, f"!{len(self._nodes)}")

    def loop(self, *properties: str) -> str:
        """The name of the node of loops with these properties (contents of nodes); it refers to itself, as LLVM wants it."""
        inner = ", ".join([self.node(content) for content in properties])
        return self.node(f"loop {inner}")

    def printed(self) -> str:
        """The module's text. The module is empty then: its functions, their blocks and it refer to each other, and would stay
        in memory until the garbage collector looks at them."""
        text = str(self)
        for found in self.globals.values():
            if isinstance(found, Function):
                found.blocks.clear()
        self.globals.clear()
        return text

    def __str__(self) -> str:
        lines = [f'; ModuleID = "{self.name}"', *([f'target triple = "{self.triple}"'] if self.triple else [])]
        for found in self.globals.values():
            lines += found.lines()
        for content, name in self._nodes.items():
            loop = content.removeprefix("loop ")
            lines.append(f"{name} = {content}" if loop is content else f"{name} = distinct !{{{name}, {loop}}}")
        return "\n".join([*lines, ""])
