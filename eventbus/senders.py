"""Which emitter belongs to which sender, without keeping the senders alive."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from eventbus.emitter import Emitter

if TYPE_CHECKING:
    from eventbus.signal import Signal


class Ref(weakref.ref[Any]):
    """A weak reference, to a sender or an emitter, that knows its key and whose it is."""

    __slots__ = ("key", "senders")
    key: object
    senders: weakref.ref[Senders]


def _sender_died(reference: Ref) -> None:
    senders = reference.senders()
    if senders is not None:  # pragma: no branch -- while all is torn down
        senders.forget_sender(reference.key)


def _emitter_died(reference: Ref) -> None:
    senders = reference.senders()
    if senders is not None:  # pragma: no branch -- while all is torn down
        senders.forget_emitter(reference)


def sender_key(sender: object) -> object:
    """Return what tells senders apart: the value of a str, an int or None, else the identity."""
    if sender is None or isinstance(sender, str):
        return sender
    if isinstance(sender, int):
        return "int", int(sender)
    return id(sender)


def unfit_sender(sender: object) -> TypeError:
    """Make the error for a sender that can be neither weakly held nor safely compared."""
    msg = (
        f"{sender!r} cannot be a sender to connect to: a {type(sender).__name__} can be "
        "neither weakly held nor safely compared; use a str, an int, or an object"
    )
    return TypeError(msg)


class Senders:
    """The emitters of one signal, by sender."""

    def __init__(self) -> None:
        self._index: dict[object, Ref] = {}
        self.addressed: set[object] = set()
        """The keys of senders with subscriptions of their own."""
        self.by_value: int = 0
        """How many of them are values, which an identity does not tell."""
        self._kept: dict[object, Emitter] = {}
        """The emitters among them that their sender does not keep itself."""
        self._built: dict[object, Ref] = {}
        """The emitters that have plans."""

    def find(self, sender: object) -> Emitter | None:
        """Return the emitter of a sender if there is one; never another sender's."""
        reference = self._index.get(sender_key(sender))
        emitter: Emitter | None = None if reference is None else reference()
        if emitter is None or not isinstance(emitter.key, int):
            return emitter  # a value is its own identity
        return emitter if emitter.sender_of() is sender else None

    def add(self, signal: Signal, sender: object) -> Emitter:
        """Make the emitter of a sender.

        Raises:
            TypeError: the sender can be neither weakly held nor safely compared.

        """
        key = sender_key(sender)
        if isinstance(key, int):
            sender_of: Callable[[], object] = self._sender_ref(sender, key)
        else:
            sender_of = lambda: sender  # noqa: E731 -- a value, not an object to be held
        emitter = Emitter(signal, key, sender_of)
        self._index[key] = self._ref(emitter, key, _emitter_died)
        keeper = getattr(sender, "__emitters__", None)
        if isinstance(keeper, dict):
            keeper[signal] = emitter  # what is connected to it alone shall die with it
        return emitter

    def _sender_ref(self, sender: object, key: object) -> Ref:
        try:
            return self._ref(sender, key, _sender_died)
        except TypeError:
            raise unfit_sender(sender) from None

    def _ref(self, target: object, key: object, died: Callable[[Ref], None]) -> Ref:
        reference = Ref(target, died)
        reference.key = key
        reference.senders = weakref.ref(self)
        return reference

    def all(self) -> list[Emitter]:
        """Return the living emitters."""
        return [e for r in self._index.copy().values() if (e := r()) is not None]

    def note_built(self, emitter: Emitter) -> None:
        """Remember that an emitter has plans; the guard must be held."""
        reference = self._index.get(emitter.key)
        if reference is not None:
            self._built[emitter.key] = reference

    def take_built(self) -> list[Emitter]:
        """Return the emitters that have plans, and forget them; the guard must be held."""
        if not self._built:
            return []
        built, self._built = self._built, {}
        # a list first: garbage collection may drop one of them at any instant
        return [e for reference in list(built.values()) if (e := reference()) is not None]

    def note_own(self, emitter: Emitter) -> bool:
        """Keep an emitter alive while it has subscriptions, unless its sender does.

        Returns whether a value, which sends cannot tell by identity, became addressed.
        """
        key = emitter.key
        reference = self._index.get(key)
        if reference is None or reference() is not emitter:
            return False  # its sender is gone and another has its identity
        if not emitter.own:
            self._unaddress(key)
            return False
        if key in self.addressed:
            return False
        self.addressed.add(key)
        if not isinstance(getattr(emitter.sender_of(), "__emitters__", None), dict):
            self._kept[key] = emitter
        by_value = not isinstance(key, int)
        self.by_value += by_value
        return by_value

    def _unaddress(self, key: object) -> None:
        self._kept.pop(key, None)
        if key in self.addressed:
            self.addressed.discard(key)
            self.by_value -= not isinstance(key, int)

    def forget_emitter(self, reference: Ref) -> None:
        """Drop an emitter that died."""
        if self._index.get(reference.key) is reference:  # pragma: no branch -- a race
            del self._index[reference.key]
            self._built.pop(reference.key, None)
            self._unaddress(reference.key)

    def forget_sender(self, key: object) -> None:
        """Drop what was connected to a sender that died."""
        reference = self._index.get(key)
        emitter: Emitter | None = None if reference is None else reference()
        if emitter is not None and emitter.sender_of() is None:
            self._unaddress(key)
            for subscription in emitter.own:
                subscription.end()
            emitter.bury()
