"""What `streams.StreamDevice` requires of the driver of a GPU that works through streams: CUDA's, or HIP's."""

from __future__ import annotations

from typing import Any, ClassVar

Answer = tuple[Any, ...]
"""What a driver's function returns: an error, which as an int is 0 where all went well, and its results."""


class Driver:
    """One vendor's driver. Streams, events, modules, graphs and contexts are handles that only it looks into.

    Attributes:
        kind: of its devices.
        title: the interface's name, for people.
        out_of_memory: name of the error for that.
        lost: names of errors after which every call in the context fails.
        final: those of them after which every call in the process fails, whatever is opened anew.
    """

    kind: ClassVar[str]
    title: ClassVar[str]
    out_of_memory: ClassVar[str]
    lost: ClassVar[frozenset[str]]
    final: ClassVar[frozenset[str]] = frozenset()

    def name_of(self, error: Any) -> str:
        raise NotImplementedError

    def advice(self, name: str) -> str:
        """What to say behind the name of an error about its cause and cure; "" where that is nothing."""
        return ""

    # --- devices ---

    def context(self, index: int) -> Answer:
        raise NotImplementedError

    def enter(self, context: Any) -> Answer:
        """Make the context the calling thread's; the result is for `leave`, which gives the thread its own back."""
        raise NotImplementedError

    def leave(self, before: Any) -> Answer:
        raise NotImplementedError

    def memory_info(self) -> Answer:
        """Free and all bytes."""
        raise NotImplementedError

    # --- memory: addresses ---

    def allocate(self, nbytes: int) -> Answer:
        raise NotImplementedError

    def free(self, address: int) -> Answer:
        raise NotImplementedError

    def allocate_pinned(self, nbytes: int) -> Answer:
        """Host memory that does not move, which the device reads and writes by itself."""
        raise NotImplementedError

    def copy_in(self, target: int, source: int, nbytes: int, stream: Any) -> Answer:
        raise NotImplementedError

    def copy_out(self, target: int, source: int, nbytes: int, stream: Any) -> Answer:
        raise NotImplementedError

    def copy_within(self, target: int, source: int, nbytes: int, stream: Any) -> Answer:
        raise NotImplementedError

    # --- streams and events ---

    def stream(self) -> Answer:
        """A stream that does not wait for the default one."""
        raise NotImplementedError

    def synchronize(self, stream: Any) -> Answer:
        """Wait until all that was started in the stream is done."""
        raise NotImplementedError

    def event(self, timed: bool) -> Answer:
        raise NotImplementedError

    def record(self, event: Any, stream: Any) -> Answer:
        raise NotImplementedError

    def hold(self, stream: Any, event: Any) -> Answer:
        """What is started in the stream from now on waits for the event."""
        raise NotImplementedError

    def wait(self, event: Any) -> Answer:
        """The calling thread waits for the event."""
        raise NotImplementedError

    def milliseconds(self, start: Any, end: Any) -> Answer:
        """Between two timed events that are past."""
        raise NotImplementedError

    def drop_event(self, event: Any) -> Answer:
        raise NotImplementedError

    # --- kernels ---

    def function(self, code: bytes) -> Answer:
        """The entry point of machine code."""
        raise NotImplementedError

    def allow_shared(self, function: Any, nbytes: int) -> Answer:
        """Launches of a kernel may say so many bytes of shared memory."""
        raise NotImplementedError

    def launch(
        self, function: Any, groups: tuple[int, int, int], threads: int, stream: Any, pointers: int, shared_nbytes: int = 0
    ) -> Answer:
        """Start a kernel; `pointers`: address of an array of addresses of its arguments; `shared_nbytes`: memory that each
        group shares besides what its text declares."""
        raise NotImplementedError

    # --- graphs of launches ---

    def graph(self) -> Answer:
        """A graph without nodes."""
        raise NotImplementedError

    def add_kernel(
        self, graph: Any, after: Any, function: Any, groups: tuple[int, int, int], threads: int, pointers: int,
        shared_nbytes: int = 0,
    ) -> Answer:  # fmt: skip
        """A node that starts a kernel, behind the node `after` (None: at the beginning)."""
        raise NotImplementedError

    def add_graph(self, graph: Any, after: Any, inner: Any) -> Answer:
        """A node that does what another graph does, which is copied."""
        raise NotImplementedError

    def begin_capture(self, stream: Any) -> Answer:
        """What this thread starts in the stream is noted instead of started."""
        raise NotImplementedError

    def end_capture(self, stream: Any) -> Answer:
        """The graph of what was noted."""
        raise NotImplementedError

    def instantiate(self, graph: Any) -> Answer:
        """The graph as something that can be started; the graph has to live as long, if nodes are to change."""
        raise NotImplementedError

    def change_kernel(
        self, executable: Any, node: Any, function: Any, groups: tuple[int, int, int], threads: int, pointers: int,
        shared_nbytes: int = 0,
    ) -> Answer:  # fmt: skip
        """Give a kernel's node other arguments from the next start on."""
        raise NotImplementedError

    def change_graph(self, executable: Any, node: Any, inner: Any) -> Answer:
        """Give the node of a graph another graph with the same nodes from the next start on."""
        raise NotImplementedError

    def upload(self, executable: Any, stream: Any) -> Answer:
        """Bring to the device what it needs, so that the first start takes no longer than others."""
        return (0,)

    def start_graph(self, executable: Any, stream: Any) -> Answer:
        raise NotImplementedError

    def drop_graph(self, graph: Any) -> Answer:
        raise NotImplementedError

    def drop_executable(self, executable: Any) -> Answer:
        """Also while it runs."""
        raise NotImplementedError
