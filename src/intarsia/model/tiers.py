"""Which tiers a session's runs go through: kernels that are made ahead and take every size, those compiled for the model, or
first these and then those."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING

from intarsia.errors import InvalidArgument
from intarsia.model.background_compile import FIRST_ONLY, KEY
from intarsia.options.config_keys import SESSION_KEYS

if TYPE_CHECKING:
    from intarsia.graph.model import Graph, Node
    from intarsia.ops.framework.registry import Registry
    from intarsia.options.session_options import SessionOptions


VARIABLE = "INTARSIA_COMPILE_IN_BACKGROUND"  # for sessions without an entry


class Tiers(Enum):
    """What serves a session's runs."""

    TUNED = "kernels compiled for the model, before the session is ready"
    FIRST = "the first tier alone; nothing is compiled"
    CHANGING = "the first tier until the model's kernels are compiled, by a process or else a thread"
    CHANGING_BY_PROCESS = "the same where a process can compile them and leave them in the cache, else as TUNED"


def tiers_of(options: SessionOptions) -> Tiers:
    """What the options ask for. Results that may not depend on when a run is are of one tier; and where memory, time or the
    model's author are not to be trusted, errors of compiling belong to the making of the session.

    Raises:
        InvalidArgument: the first tier alone is requested, and no first tier; the variable has another value.
    """
    said = options.config_entries().get(KEY)
    if options.config(FIRST_ONLY) == "1":
        if said == "0" and FIRST_ONLY in options.config_entries():
            raise InvalidArgument(f"{FIRST_ONLY!r} is '1', but {KEY!r} is '0', which waits for the tuned tier: leave out one")
        return Tiers.FIRST
    when = said or _usual()
    if when == "0" or options.use_deterministic_compute:
        return Tiers.TUNED
    if when == "1":
        return Tiers.CHANGING
    limited = options.config("session.memory_limit_mib") != "0" or options.config("session.creation_timeout_s") != "0"
    return Tiers.TUNED if limited or options.untrusted else Tiers.CHANGING_BY_PROCESS


def _usual() -> str:
    """What sessions do that do not say it."""
    found = os.environ.get(VARIABLE, "").strip() or SESSION_KEYS[KEY].default
    if found not in SESSION_KEYS[KEY].kind.split(","):
        raise InvalidArgument(f"{VARIABLE} is {found!r}; expected one of {SESSION_KEYS[KEY].kind}, as for {KEY!r}")
    return found


def draws_numbers(graph: Graph, operators: Registry) -> bool:
    """Whether a run's results depend on those before it, since its nodes draw random numbers: a session that changes over would
    begin the sequence again."""
    for node in _nodes(graph.nodes):
        record = operators.find(node.domain, node.op_type, node.version or 10_000)
        if record is not None and not record.deterministic:
            return True
    return False


def _nodes(nodes: Sequence[Node]) -> Iterator[Node]:
    for node in nodes:
        yield node
        for body in node.subgraphs:
            yield from _nodes(body.nodes)
