"""What the cases at guard pages covered, as lines for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from guarded_process import Report


def lines(found: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """`found`: of each operator {"source": its name, and what `Report.as_dict` gives}; {"known": all kernels and templates}."""
    whole, operators, known = Report(), [], {}
    for one in found:
        if "known" in one:
            known = one["known"]
        else:
            operators.append(one["source"])
            whole.add({name: seen for name, seen in one.items() if name != "source"})
    cases = whole.cases
    models = cases["right types"] + cases["wrong types"]
    yield f"{cases['runs']} runs of {models} models of a node and {cases['graphs']} graphs, of {len(operators)} kinds"
    yield ", ".join(f"{cases[name]} {name}" for name in sorted(cases) if name != "runs")
    yield f"{len(whole.names.get('drawn', ()))} pairs of operator and element type"
    yield f"paths: {', '.join(sorted(whole.names.get('paths', ())))}"
    for what in ("kernels", "templates"):
        ran, all_ = whole.names.get(what, set()), set(known.get(what, ()))
        yield f"{what} that ran ({len(ran)} of {len(all_ | ran)}): {', '.join(sorted(ran))}"
        if all_:
            yield f"{what} that did not: {', '.join(sorted(all_ - ran)) or 'none'}"
