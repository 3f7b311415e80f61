"""Which layers to leave in floats so that a loss stays within a bound: as few bytes as can be found in a bounded time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from intarsia.quantization.verdict.layers import Layer

Evaluate = Callable[[frozenset[str]], float]
"""Names of layers that stay in floats -> the loss."""


@dataclass
class SearchResult:
    """What was found.

    Attributes:
        floats: names of the layers that stay in floats -> why.
        loss: with these.
        alone: layer -> the loss without it; of those that there was time for.
        evaluations: how many models were measured.
    """

    floats: dict[str, str] = field(default_factory=dict)
    loss: float = 0.0
    alone: dict[str, float] = field(default_factory=dict)
    evaluations: int = 0


class BoundedSearch:
    """Searches layers to leave in floats.

    Args:
        layers: in the order in which they are looked at where there is no time for all: the worst first.
        evaluate: measures; each set once.
        seconds: after which no further layer is measured alone; what the bound needs is measured all the same.
    """

    def __init__(self, layers: Sequence[Layer], evaluate: Evaluate, seconds: float) -> None:
        self.layers, self._evaluate = layers, evaluate
        self._until = time.monotonic() + seconds
        self._known: dict[frozenset[str], float] = {}
        self.result = SearchResult()

    def loss(self, floats: Iterable[str]) -> float:
        """The loss with these layers in floats."""
        chosen = frozenset(floats)
        if chosen not in self._known:
            self._known[chosen] = self._evaluate(chosen)
            self.result.evaluations += 1
        return self._known[chosen]

    def measure_alone(self) -> None:
        """Measure the loss without each layer, as long as there is time."""
        for layer in self.layers:
            if time.monotonic() > self._until:
                return
            self.result.alone[layer.name] = self.loss([layer.name])

    def run(self, bound: float) -> SearchResult:
        """Layers in floats such that the loss is at most `bound`: with all of them it is 0.

        Layers are given back in the order of what each gains for its weights, twice as many each time, and the last step is
        halved; of those, the ones that the bound does not need are quantised again, the largest first.
        """
        self.result.floats, self.result.loss = {}, self.loss([])
        if self.result.loss <= bound:
            return self.result
        self.measure_alone()
        order = self._by_gain()
        count = self._enough(order, bound)
        chosen = order[:count]
        for layer in sorted(chosen, key=lambda one: -one.weights):
            less = [other for other in chosen if other is not layer]
            if time.monotonic() <= self._until and less and self.loss(o.name for o in less) <= bound:
                chosen = less
        self.result.loss = self.loss(layer.name for layer in chosen)
        self.result.floats = {layer.name: self._why(layer) for layer in chosen}
        return self.result

    def _by_gain(self) -> list[Layer]:
        whole, place = self.loss([]), {layer.name: i for i, layer in enumerate(self.layers)}

        def key(layer: Layer) -> tuple[int, float, int]:
            alone = self.result.alone.get(layer.name)
            if alone is None:
                return 1, 0.0, place[layer.name]
            return 0, -(whole - alone) / max(layer.weights, 1) ** 0.5, place[layer.name]

        return sorted(self.layers, key=key)

    def _enough(self, order: Sequence[Layer], bound: float) -> int:
        """The least number of first layers of an order that keeps the bound, if more never lose more."""
        below, enough = 0, 1
        while enough < len(order) and self.loss(layer.name for layer in order[:enough]) > bound:
            below, enough = enough, min(2 * enough, len(order))
        while enough - below > 1:
            middle = (below + enough) // 2
            if self.loss(layer.name for layer in order[:middle]) <= bound:
                enough = middle
            else:
                below = middle
        return enough

    def _why(self, layer: Layer) -> str:
        alone, whole = self.result.alone.get(layer.name), self.loss([])
        if alone is None:
            return "its values differ most"
        return f"without it the loss is {alone:.4g} instead of {whole:.4g}"
