"""What a session does about a provider that fails or crashes in a run: it is made anew without it, where that is allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from intarsia.errors import EPFail, IntarsiaError, NodeFailed, crashed, is_of_a_signal_handler
from intarsia.plan.size_constraints import BranchNeedsVariant, SizesNeedVariant
from intarsia.providers.fallback import report
from intarsia.providers.registry import CPU

if TYPE_CHECKING:
    from intarsia.model.runnable import Runnable
    from intarsia.session.local_engine import LocalEngine


def other_model(engine: LocalEngine, model: Runnable, inputs: list[Any], error: Exception) -> Runnable:
    """As `LocalEngine.other_model`."""
    if isinstance(error, BranchNeedsVariant | SizesNeedVariant):
        from intarsia.session.call_paths.model_variants import other_variant

        found = other_variant(engine, model, inputs, error)
        if found is not None:
            return found
    if isinstance(error, NodeFailed):
        from intarsia.session.call_paths.index_errors import named

        raise named(engine, inputs, error) from error.__cause__
    if isinstance(error, IntarsiaError | MemoryError):
        raise error
    raise crashed(provider_of(engine, model), "in a run", error) from error


def recovers(engine: LocalEngine, error: BaseException, model: Runnable) -> bool:
    """After an error in a run of `model`: whether a provider failed or crashed and the session was made anew without it.

    Raises:
        EPFail: it failed or crashed, and no other may take its place.
    """
    meant = isinstance(error, IntarsiaError | MemoryError) and not isinstance(error, EPFail)
    if meant or not isinstance(error, Exception) or is_of_a_signal_handler(error):
        return False
    failure = error if isinstance(error, EPFail) else crashed(provider_of(engine, model), "in a run", error)
    fall_back(engine, failure, model)
    return True


def fall_back(engine: LocalEngine, error: EPFail, model: Runnable) -> None:
    """Make the session anew without the provider that failed in a run of `model`.

    Raises:
        error itself: that may not be.
    """
    with engine.fallback_lock:
        if model is not engine.model and not any(model is m for m, _ in engine.variants.values()):
            return  # another thread's run has failed too, and the session is a new one already
        failed, built = error.provider or provider_of(engine, model), engine.built
        left: list[Any] = [c.argument for c in built.choices if c.name != failed and not c.implied]
        allowed = built.mode == "warn" or (built.mode == "listed" and left)
        if not engine.may_fall_back or not failed or failed == CPU or not allowed:
            raise error
        engine.create(left, None)
        report(f"{failed} failed in a run: {error}. The session goes on with {', '.join(engine.providers)}.")


def provider_of(engine: LocalEngine, model: Runnable) -> str:
    """The provider that has a whole model, "" where there are several."""
    parts = () if model.partition is None else model.partition.parts
    return parts[0].provider.name if len(parts) == 1 else "" if parts else engine.providers[0]
