"""What a separate process runs: a session on a model of a stranger, called over two pipes."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import queue
import signal
import sys
import threading
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import intarsia
from intarsia import errors
from intarsia.options.session_options import RunOptions
from intarsia.sandbox import confine
from intarsia.sandbox.messages import Channel, Ended, NotUnderstood, packed, unpacked

_MOST_NBYTES = 1 << 46  # the program is trusted
_SPARE_SECONDS = 5.0  # beyond what the program waits

_Question = tuple[dict[str, Any], list[np.ndarray]]


def main() -> None:
    """Answer questions until the program closes its pipe or ends."""
    reader, writer = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)  # what libraries print is no message
    os.close(nothing)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program decides what its user's wish to stop means
    _Child(Channel(reader, writer)).serve()


class _Log(logging.Handler):
    """Gives records to the program."""

    def __init__(self, child: _Child) -> None:
        super().__init__()
        self.child = child

    def emit(self, record: logging.LogRecord) -> None:
        self.child.say({"log": [record.name, record.levelno, record.getMessage()]})


class _Child:
    def __init__(self, channel: Channel) -> None:
        self.channel, self.writes = channel, threading.Lock()
        self.questions: queue.SimpleQueue[_Question] = queue.SimpleQueue()
        self.now: tuple[int, Any] = (0, None)  # the number of the question, and what has to be told to stop
        self.stopped = 0  # the last question that is not wanted any more
        self.session: Any = None

    def serve(self) -> None:
        first = self._receive()
        held = [*confine.limit_resources(first[0]["data_nbytes"]), *confine.filter_system_calls()]
        threading.Thread(target=self._listen, name="intarsia-questions", daemon=True).start()
        self.questions.put(first)
        while True:
            question, arrays = self.questions.get()
            _alarm(question.get("seconds", 0.0))
            answer, results = self._answer(question, arrays)
            if question is first[0]:
                answer["held"] = held
            _alarm(0.0)
            with self.writes:
                self.channel.send(answer, results)

    def _receive(self) -> _Question:
        try:
            return self.channel.receive(_MOST_NBYTES)
        except (Ended, NotUnderstood):
            os._exit(0)

    def _listen(self) -> None:
        """Read questions ahead, so that a wish to stop is heard during a run. The end of the program is the end of this."""
        while True:
            question, arrays = self._receive()
            if "stop" not in question:
                self.questions.put((question, arrays))
                continue
            self.stopped = question["stop"]
            number, told = self.now
            if number == self.stopped and told is not None:
                told()

    def say(self, message: dict[str, Any]) -> None:
        """Tell the program something before the answer."""
        with self.writes, contextlib.suppress(Ended):
            self.channel.send({"said": message})

    def _answer(self, question: dict[str, Any], arrays: list[np.ndarray]) -> tuple[dict[str, Any], list[np.ndarray]]:
        results: list[np.ndarray] = []
        try:
            return getattr(self, f"_do_{question['do']}")(question, arrays, results), results
        except errors.IntarsiaError as error:
            name = next(k.__name__ for k in type(error).__mro__ if getattr(errors, k.__name__, None) is k)
            return {"error": [name, str(error)]}, []
        except MemoryError as error:
            return {"error": ["OutOfMemory", f"{error or 'out of memory'} (in the session's process)"]}, []
        except Exception as error:  # noqa: BLE001 # the program is told of it
            where = traceback.extract_tb(error.__traceback__)[-1]
            text = f"the session's process met {type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
            return {"error": ["Fail", text]}, []

    def _stoppable(self, number: int, told: Any) -> None:
        self.now = number, told
        if self.stopped == number:
            told()

    def _do_begin(self, question: dict[str, Any], arrays: list[np.ndarray], _: list[np.ndarray]) -> dict[str, Any]:
        """Make the session."""
        try:
            options, providers, provider_options, keywords = pickle.loads(arrays[0].data)  # noqa: S301 # of the program itself
        except Exception as error:
            raise errors.InvalidArgument(
                f"the session's options cannot be read in the session's process: {type(error).__name__}: {error}. Operators of "
                "a program have to be in modules that can be imported"
            ) from error
        source = question["path"] if question["path"] is not None else arrays[1].tobytes()
        arrays.clear()
        logging.getLogger("intarsia").addHandler(_Log(self))
        logging.getLogger("intarsia").propagate = False
        logging.getLogger("intarsia").setLevel(question["level"])
        warnings.showwarning = lambda message, category, *_, **__: self.say({"warning": str(message)})
        warnings.simplefilter("always")
        self._stoppable(question["call"], lambda: options.set_load_cancellation_flag(True))
        if question["progress"]:
            options.set_progress_callback(lambda p: self.say({"progress": [p.stage, p.done, p.total, p.fraction, p.part]}))
        session = intarsia.InferenceSession(source, options, providers, provider_options, **keywords)
        options.set_progress_callback(None)
        self.session = session
        arguments = {
            "inputs": session.get_inputs(), "outputs": session.get_outputs(),
            "overridable": session.get_overridable_initializers(),
        }  # fmt: skip
        told = {name: [[a.name, a.type, a.shape] for a in found] for name, found in arguments.items()}
        meta = session.get_modelmeta()
        return {
            **told, "meta": [meta.producer_name, meta.domain, meta.description, meta.graph_description, meta.version],
            "name": meta.graph_name, "properties": meta.custom_metadata_map, "providers": session.get_providers(),
            "provider_options": session.get_provider_options(),
        }  # fmt: skip

    def _do_run(self, question: dict[str, Any], arrays: list[np.ndarray], results: list[np.ndarray]) -> dict[str, Any]:
        feed = {name: unpacked(value, arrays) for name, value in question["feed"]}
        arrays.clear()
        options = RunOptions()
        for name, value in question["options"].items():
            setattr(options, name, value)
        for key, value in question["entries"].items():
            options.add_run_config_entry(key, value)
        self._stoppable(question["call"], lambda: setattr(options, "terminate", True))
        found = self.session.run(question["names"], feed, options, timeout=question["seconds"])
        return {"results": [packed(value, results) for value in found]}

    def _do_explain(self, *_: Any) -> dict[str, Any]:
        return {"explanation": self.session.explain().to_dict()}

    def _do_profile(self, *_: Any) -> dict[str, Any]:
        profile = self.session._engine.profile
        return {"start_ns": profile.start_ns, "events": profile.events}


def _alarm(seconds: float) -> None:
    """End this process where it still works on a question after its time, whether or not the program is there to see to it."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds + _SPARE_SECONDS if seconds else 0.0)


if __name__ == "__main__":
    sys.exit("this module is run by intarsia.sandbox.process")
