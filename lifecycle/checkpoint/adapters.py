"""How objects are saved that are neither plain values nor arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Adapter", "adapter", "register_adapter", "state_of"]


class Adapter(NamedTuple):
    """How objects of one kind are saved and loaded."""

    save: Callable[[Any], Any]
    """Returns an object's state: plain values and arrays, nested in dicts and lists."""

    load: Callable[[Any, Any], Any]
    """Puts a state into an object. What it returns replaces the object, unless it is None."""


def register_adapter(
    kind: type, save: Callable[[Any], Any], load: Callable[[Any, Any], Any]
) -> None:
    """Say how objects of a class, and of those derived from it, are saved and loaded.

    Args:
        kind: the class.
        save: takes an object and returns its state: plain values and arrays, nested in
            dicts and lists.
        load: takes an object and a saved state and puts the one into the other; or
            returns an object to stand in its place.

    Raises:
        TypeError: an argument is of the wrong kind.
    """
    if not isinstance(kind, type):
        raise TypeError(f"an adapter is for a class, not for {kind!r}")
    if not callable(save) or not callable(load):
        raise TypeError("save and load are functions: save(object), load(object, state)")
    _registered[kind] = Adapter(save, load)


def adapter(value: object) -> Adapter | None:
    """Return how an object is saved, None if there is no way.

    What was registered comes before the object's own ``state_dict``.
    """
    for kind in type(value).__mro__:
        if kind in _registered:
            return _registered[kind]
        known = _KNOWN.get(f"{kind.__module__}.{kind.__qualname__}")
        if known is not None:
            return known
    if hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
        return None if isinstance(value, type) else _STATEFUL
    return None


def state_of(value: object) -> tuple[Any] | None:
    """Return an object's state in a tuple; None if it has none."""
    found = adapter(value)
    return (found.save(value),) if found is not None else None


def _load_stateful(value: Any, state: Any) -> None:
    value.load_state_dict(state)


def _load_bits(generator: Any, state: Any) -> None:
    generator.bit_generator.state = state


_registered: dict[type, Adapter] = {}

_STATEFUL: Final = Adapter(lambda value: value.state_dict(), _load_stateful)

# By name, since none of them may be imported for this.
_KNOWN: Final[Mapping[str, Adapter]] = {
    "random.Random": Adapter(
        lambda generator: generator.getstate(), lambda generator, state: generator.setstate(state)
    ),
    "numpy.random._generator.Generator": Adapter(
        lambda generator: generator.bit_generator.state, _load_bits
    ),
    "numpy.random.mtrand.RandomState": Adapter(
        lambda generator: generator.get_state(legacy=False),
        lambda generator, state: generator.set_state(state),
    ),
    "torch._C.Generator": Adapter(
        lambda generator: generator.get_state(),
        lambda generator, state: generator.set_state(state) and None,
    ),
}
