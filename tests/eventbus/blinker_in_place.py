"""A pytest plugin that puts our classes in blinker's place; see test_blinker_suite.py."""

from __future__ import annotations

import asyncio
import inspect
import sys
import types

import blinker
import pytest

from eventbus import Bus, Signal

LEFT_OUT = {
    "test_empty_bucket_growth": "asserts on the private _by_sender and _by_receiver",
    "test_weak_receiver": "asserts on the private _by_sender and _by_receiver",
    "test_filtered_receiver_weakref": (
        "demands a fault: that `receivers` still has an entry when the only sender is gone"
    ),
}
"""blinker's own tests that cannot hold, each with the reason."""


class Nameless(Signal):
    """A bare ``blinker.Signal()``."""

    def __init__(self, doc: str | None = None) -> None:
        super().__init__("nameless", doc)


class Namespace(Bus):
    """An open bus; a bus has no length, as one that were false when empty would be a trap."""

    def __init__(self) -> None:
        super().__init__(open=True)

    def __len__(self) -> int:
        return len(self.points)


in_place = types.ModuleType("blinker")
vars(in_place).update(vars(blinker), Signal=Nameless, NamedSignal=Signal, Namespace=Namespace)
sys.modules["blinker"] = in_place


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what is listed."""
    for item in items:
        reason = LEFT_OUT.get(item.name)
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run coroutine tests, for which blinker uses a plugin."""
    if not inspect.iscoroutinefunction(pyfuncitem.function):
        return None
    asyncio.run(pyfuncitem.function())
    return True
