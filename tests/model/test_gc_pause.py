"""The collector is paused while sessions are created, and left as it was."""

from __future__ import annotations

import gc
import threading

import pytest

from intarsia.model.gc_pause import collection_paused


def test_collector_is_off_inside_and_on_again_after_an_error() -> None:
    def fail() -> None:
        with collection_paused(), collection_paused():
            assert not gc.isenabled()
            raise KeyError("inside")

    with pytest.raises(KeyError, match="inside"):
        fail()
    assert gc.isenabled()


def test_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with collection_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_last_thread_out_switches_it_on() -> None:
    inside, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with collection_paused():
            inside.set()
            leave.wait(600)

    thread = threading.Thread(target=stay)
    thread.start()
    assert inside.wait(300)
    with collection_paused():
        pass
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()
