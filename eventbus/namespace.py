"""Namespace: the points that are declared, and the signals behind their names."""

from __future__ import annotations

from collections.abc import Iterable
from keyword import iskeyword

from eventbus.errors import UnknownPointError, nearest
from eventbus.guard import Guard
from eventbus.signal import Signal


class Namespace:
    """The declared points, by name and alias.

    Args:
        open: declare a point, with any payload, when its name is first used.
        sender: a further name, beside ``sender``, by which receivers ask for the sender.

    """

    def __init__(self, *, open: bool = False, sender: str | None = None) -> None:  # noqa: A002
        self._open = open
        self._sender_name = sender
        self._signals: dict[str, Signal] = {}
        self._aliases: dict[str, str] = {}
        self._guard = Guard()

    def declare(
        self,
        name: str,
        payload: Iterable[str] | None = (),
        *,
        count: str | None = None,
        aliases: Iterable[str] = (),
        doc: str = "",
        awaited: bool = False,
    ) -> Signal:
        """Add a point and return its signal.

        Args:
            name: its name, without ``on_``.
            payload: the keys that each send carries, all of them; None to accept any.
            count: the key that is the point's index, which ``every=`` and the like go by;
                added to the payload if it isn't there. Without it, sends are counted.
            aliases: other names that mean the same.
            doc: what the point means.
            awaited: whether it is sent with ``send_async``, so that receivers may be
                coroutine functions.

        Raises:
            ValueError: the name or an alias is taken, or a key is no usable name.

        """
        for option, value in (("payload", payload), ("aliases", aliases)):
            if isinstance(value, str):
                msg = f"{option} must be several names, not the one str {value!r}"
                raise TypeError(msg)
        keys, aliases = None if payload is None else tuple(payload), tuple(aliases)
        if keys is None and count is not None:
            msg = f"{name!r} can't be counted by {count!r}: its payload is not declared"
            raise ValueError(msg)
        if keys is not None and count is not None and count not in keys:
            keys = (*keys, count)
        self._check_keys(name, keys or ())
        with self._guard:
            for each in (name, *aliases):
                if self._canonical(each) is not None or not each:
                    msg = f"the point {each!r} is declared already"
                    raise ValueError(msg)
            signal = self._signals[name] = Signal(
                name,
                doc or None,
                payload=keys,
                index=count,
                sender_name=self._sender_name,
                awaited=awaited,
                guard=self._guard,
            )
            self._aliases |= dict.fromkeys(aliases, name)
        try:
            self._declared(signal)
        except BaseException:
            self._undeclare(signal)
            raise
        return signal

    def _declared(self, signal: Signal) -> None:
        """Do what is due for a new point; if it raises, the point is taken back."""

    def _undeclare(self, signal: Signal) -> None:
        """Take back a point that a catch-all could not be connected to."""
        with self._guard:
            del self._signals[signal.name]
            self._aliases = {a: n for a, n in self._aliases.items() if n != signal.name}
        for subscription in signal.subscriptions():
            subscription.disconnect()

    def _check_keys(self, name: str, keys: tuple[str, ...]) -> None:
        if not isinstance(name, str) or not name or "*" in name:
            msg = f"a point's name must be a non-empty str without '*', not {name!r}"
            raise ValueError(msg)
        reserved = {"sender", "signal", self._sender_name}
        for key in keys:
            if not key.isidentifier() or iskeyword(key) or key.startswith("_"):
                msg = f"payload key {key!r} of {name!r} must be an identifier without leading '_'"
                raise ValueError(msg)
            if key in reserved:
                msg = f"payload key {key!r} of {name!r} is reserved: any receiver may ask for it"
                raise ValueError(msg)
        if len(set(keys)) != len(keys):
            msg = f"the payload of {name!r} has a key twice: {', '.join(keys)}"
            raise ValueError(msg)

    def _canonical(self, name: str) -> str | None:
        """Return the name that a name, an alias or their ``on_`` form stands for."""
        for each in (name, name.removeprefix("on_")):
            if each in self._signals:
                return each
            if each in self._aliases:
                return self._aliases[each]
        return None

    def signal(self, name: str) -> Signal:
        """Return the signal of a point, by its name, an alias, or either with ``on_``.

        Raises:
            UnknownPointError: there is none, and the bus is not open.

        """
        found = self._signals.get(name)
        if found is not None:
            return found
        canonical = self._canonical(name) if isinstance(name, str) else None
        if canonical is None:
            if self._open and isinstance(name, str) and "*" not in name:
                try:
                    return self.declare(name.removeprefix("on_") or name, None)
                except ValueError:
                    canonical = self._canonical(name)
                    if canonical is None:  # else another thread was first
                        raise
                    return self._signals[canonical]
            hint = nearest(str(name).removeprefix("on_"), self.names)
            msg = f"there is no point {name!r}{hint}"
            raise UnknownPointError(msg)
        return self._signals[canonical]

    @property
    def points(self) -> tuple[str, ...]:
        """The names of all points, in the order of their declaration."""
        return tuple(self._signals)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all points and their aliases."""
        return (*self._signals, *self._aliases)

    def __contains__(self, name: object) -> bool:
        """Say whether a name, an alias, or either with ``on_``, is a point."""
        return isinstance(name, str) and self._canonical(name) is not None
