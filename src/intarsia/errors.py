"""The exception tree.

IntarsiaError (RuntimeError)
├── NoSuchFile            the model file does not exist (also FileNotFoundError)
├── NotImplemented        an operator, type or feature that no provider has (also NotImplementedError)
│   └── UnknownOperator       no such operator, or no such version of its set (also InvalidGraph)
├── InvalidArgument       a call's argument is wrong: input, shape, dtype, option, name (also ValueError)
│   ├── UnknownOption         an option or provider name that does not exist
│   └── WrongType             an argument of a Python type that the call does not take (also TypeError)
├── Fail                  a model could not be loaded; a run was stopped or could not be finished
│   ├── InvalidModelError     the model itself is wrong
│   │   ├── InvalidProtobuf       not an ONNX file, cut short, or corrupt
│   │   │   └── NoGraph               nothing in it: no bytes, or no graph (also InvalidArgument)
│   │   ├── InvalidGraph          readable, but not a valid graph (cycle, name written twice, unknown input)
│   │   │   ├── UndefinedValue        a node reads a value that nothing computes (also InvalidArgument)
│   │   │   ├── SizeTooLarge          an expression of sizes that no memory has (also OverflowError)
│   │   │   └── NodeFailed            a node has no result for the sizes and values of this run (also InvalidArgument)
│   │   ├── InvalidSignature      the model is not what was signed, or its signature does not cover all of it
│   │   └── ExternalDataError     an external weight file is missing, too short, or outside the model's folder
│   ├── OutOfMemory           memory could not be had (also MemoryError)
│   ├── NotWritten            a file could not be written; what was there before is unchanged (also OSError)
│   ├── RunTimeout            a run took longer than `timeout` (also TimeoutError)
│   └── ModelLoadCanceled     creating the session was stopped by the load cancellation flag
├── EPFail                an execution provider could not start, compile or run
│   └── DeviceLost            a device stopped working; what was in its memory is gone (onnxruntime's DeviceReset)
├── ModelRequiresCompilation  the model is not compiled, or not for this machine, and the session may not compile it
└── NotFound              a named thing (library, adapter, parameter) does not exist

onnxruntime raises its `Fail` for most models that it cannot load and most nodes that cannot compute, and a more exact class for
others; here the exact class is a `Fail` too, so that handlers of either kind catch it.

EngineError, ModelLoaded and NoModel are onnxruntime's names for what cannot happen here; they can be caught.

Every message says what was expected, what was given, where (provider, node, value), and what to do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from intarsia.printable import visible_lines


class IntarsiaError(RuntimeError):
    """Base of all errors that Intarsia raises on purpose."""

    def __str__(self) -> str:
        return visible_lines(super().__str__())


class Fail(IntarsiaError):
    """A model could not be loaded, or a run was stopped or could not be finished."""


class InvalidModelError(Fail):
    """The model is not valid ONNX."""


class InvalidProtobuf(InvalidModelError):
    """The bytes are not an ONNX model, or are cut short or corrupt."""


class InvalidGraph(InvalidModelError):
    """The model can be read but its graph is not valid."""


class ExternalDataError(InvalidModelError):
    """External weight data is missing, too short, or outside the model's folder."""


class InvalidSignature(InvalidModelError):
    """A signature that was requested does not hold, or does not cover a file of the model."""


class NoSuchFile(IntarsiaError, FileNotFoundError):
    """The model file does not exist."""


class NotImplemented(IntarsiaError, NotImplementedError):
    """No provider implements what the model needs."""


class InvalidArgument(IntarsiaError, ValueError):
    """An argument of a call is wrong."""


class UnknownOperator(NotImplemented, InvalidGraph):
    """The model requires an operator, or a version of an operator set, that nobody has defined."""


class NodeFailed(InvalidGraph, InvalidArgument):
    """A node has no result for what a run gives it: sizes do not fit together, a position or number is out of range."""


class NoGraph(InvalidProtobuf, InvalidArgument):
    """What was given as a model has no bytes, or no graph in it."""


class UndefinedValue(InvalidGraph, InvalidArgument):
    """A node reads a value that no input, initializer or node of the graph gives."""


class SizeTooLarge(InvalidGraph, OverflowError):
    """A size is a product of so many others that no memory has it, or that it cannot be computed with."""


class UnknownOption(InvalidArgument):
    """A provider, option or configuration name that does not exist."""


class WrongType(InvalidArgument, TypeError):
    """An argument is of a Python type that the call does not take."""


class OutOfMemory(Fail, MemoryError):
    """The memory that a run or a compilation needs could not be had."""


class NotWritten(Fail, OSError):
    """A file could not be written: the disk is full, or nothing may be written there. What was there before is unchanged."""


class RunTimeout(Fail, TimeoutError):
    """A run took longer than its `timeout`."""


class ModelLoadCanceled(Fail):
    """Creating the session was stopped by `SessionOptions.set_load_cancellation_flag`."""


class EPFail(IntarsiaError):
    """An execution provider could not start, compile or run. `provider`: its name, where the failure was in a run."""

    provider: str = ""


def crashed(provider: str, when: str, error: Exception) -> EPFail:
    """The error for one that a provider ("": which one is not known here) did not mean to raise.

    Raises:
        error itself: a handler of a signal raised it, which Python calls in the middle of anything.
    """
    if is_of_a_signal_handler(error):
        raise error
    failure = EPFail(f"{provider or 'A provider'} crashed {when}: {type(error).__name__}: {error}")
    failure.provider = provider
    return failure


def is_of_a_signal_handler(error: BaseException) -> bool:
    """Whether the program's handler of a signal raised an exception (an alarm that ends what takes too long)."""
    import signal

    handlers = [handler for number in signal.valid_signals() if callable(handler := signal.getsignal(number))]
    codes = {getattr(h if hasattr(h, "__code__") else type(h).__call__, "__code__", None) for h in handlers}
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code in codes:
            return True
        traceback = traceback.tb_next
    return False


class DeviceLost(EPFail):
    """A device was reset, removed or stopped working; what was in its memory is gone."""


DeviceReset = DeviceLost


class ModelRequiresCompilation(IntarsiaError):
    """The model has to be compiled, which "session.disable_model_compile" forbids; or it was compiled for another machine."""


class NotFound(IntarsiaError, LookupError):
    """What was named does not exist."""


class EngineError(IntarsiaError):
    """onnxruntime's name, never raised here."""


class ModelLoaded(IntarsiaError):
    """onnxruntime's name, never raised here: a session loads its model once."""


class NoModel(IntarsiaError):
    """onnxruntime's name, never raised here: there is no session without a model."""


_LISTED = 12  # so many valid names are a help; of more the end of a message says how many, and where they are


def nearest(name: str, valid: Iterable[str], listed_in: str = "") -> str:
    """The end of a sentence about an unknown name: the valid one that was probably meant, or all of them where they are few.

    Args:
        name: what was given.
        valid: the names there are.
        listed_in: the page of the documents that lists them, such as "compatibility.md#configuration-entries".
    """
    names = sorted(valid)
    guess = _guess(name, names)
    place = f"; all: docs/{listed_in}" if listed_in else ""
    few = ", ".join(repr(n) for n in names[:_LISTED]) or "none"
    if guess is not None:
        return f"did you mean {guess!r}?" + (f" (valid: {few})" if len(names) <= _LISTED else place.replace("; all", " All", 1))
    if len(names) <= _LISTED:
        return f"valid: {few}"
    if place:
        return f"none of the {len(names)} valid names is like it{place}"
    return f"valid: {few} and {len(names) - _LISTED} more"


def _guess(name: str, names: list[str]) -> str | None:
    """The name that was probably meant. What two names share up to a dot does not make them alike."""
    import difflib

    def likeness(other: str) -> tuple[float, str]:
        shared = next((i for i, (a, b) in enumerate(zip(low, other.lower(), strict=False)) if a != b), len(low))
        start = max(low.rfind(".", 0, shared), low.rfind("::", 0, shared)) + 1
        ratio = difflib.SequenceMatcher(None, other.lower()[start:], low[start:]).ratio()
        return max(ratio, _ALIKE if len(low) > 3 and low in other.lower() else 0), other

    low = name.lower()
    best = max(names, key=likeness, default=None)
    if best is not None and likeness(best)[0] >= _ALIKE:
        return best
    return next((n for n in names if len(name) > 1 and n.lower().startswith(low)), None)


_ALIKE = 0.55


def check_outputs(wanted: Iterable[str], outputs: Collection[str]) -> None:
    """Raise InvalidArgument where one of the names is not an output."""
    for name in wanted:
        if name not in outputs:
            raise InvalidArgument(f"Invalid output name:{name}; {nearest(name, outputs)}")
