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
    """A signature that was asked for does not hold, or does not cover a file of the model."""


class NoSuchFile(IntarsiaError, FileNotFoundError):
    """The model file does not exist."""


class NotImplemented(IntarsiaError, NotImplementedError):
    """No provider implements what the model needs."""


class InvalidArgument(IntarsiaError, ValueError):
    """An argument of a call is wrong."""


class UnknownOperator(NotImplemented, InvalidGraph):
    """The model asks for an operator, or a version of an operator set, that nobody has defined."""


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


def nearest(name: str, valid: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: the nearest valid one, or the list of all."""
    import difflib

    names = sorted(valid)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if not close:
        folded = {n.lower(): n for n in names}
        close = [folded[m] for m in difflib.get_close_matches(name.lower(), list(folded), n=1, cutoff=0.5)]
        close = close or [n for low, n in folded.items() if len(name) > 1 and low.startswith(name.lower())]
    listed = ", ".join(repr(n) for n in names) or "none"
    return f"did you mean {close[0]!r}? (valid: {listed})" if close else f"valid: {listed}"


def check_outputs(wanted: Iterable[str], outputs: Collection[str]) -> None:
    """Raise InvalidArgument where one of the names is not an output."""
    for name in wanted:
        if name not in outputs:
            raise InvalidArgument(f"Invalid output name:{name}; {nearest(name, outputs)}")
