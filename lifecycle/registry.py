"""Subscribers by name, for the command line and for configuration.

A name comes from one of three places: the standard subscribers, the entry-point group
``lifecycle.subscribers`` of an installed distribution, or a call of ``register``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, NamedTuple

from eventbus.errors import nearest
from lifecycle.typed_text import convert, resolve

__all__ = [
    "GROUP",
    "STANDARD",
    "Entry",
    "OptionError",
    "Request",
    "UnknownSubscriberError",
    "create",
    "entries",
    "find",
    "parse",
    "register",
]

Factory = Callable[..., object]

GROUP: Final = "lifecycle.subscribers"
"""The entry-point group in which other distributions offer their subscribers."""

STANDARD: Final[Mapping[str, str]] = {
    "checkpoint": "lifecycle.checkpoint:Checkpoint",
    "csv": "lifecycle.subscribers:CSVLogger",
    "early-stopping": "lifecycle.subscribers:EarlyStopping",
    "ema": "lifecycle.subscribers:EMA",
    "graceful-shutdown": "lifecycle.subscribers:GracefulShutdown",
    "history": "lifecycle.subscribers:History",
    "log-lines": "lifecycle.subscribers:LogLines",
    "progress": "lifecycle.subscribers:Progress",
    "reduce-on-plateau": "lifecycle.subscribers:ReduceOnPlateau",
    "schedule": "lifecycle.subscribers:Schedule",
    "stop-on-nan": "lifecycle.subscribers:StopOnNaN",
    "stop-on-target": "lifecycle.subscribers:StopOnTarget",
    "tensorboard": "lifecycle.subscribers:TensorBoard",
    "time-limit": "lifecycle.subscribers:TimeLimit",
    "timer": "lifecycle.subscribers:Timer",
}
"""The standard subscribers. Their class names are understood too."""


class UnknownSubscriberError(LookupError):
    """No subscriber has this name."""


class OptionError(ValueError):
    """A subscriber was asked for with an option it does not have, lacks, or cannot read."""


class Entry(NamedTuple):
    """One subscriber that can be asked for by name."""

    name: str
    source: str
    """The distribution that offers it; ``registered`` where code did."""

    load: Callable[[], Factory]
    """Imports and returns the class or function that makes it."""


class Request(NamedTuple):
    """A subscriber and its options, checked but not made yet."""

    name: str
    factory: Factory
    arguments: inspect.BoundArguments

    def make(self) -> object:
        """Make the subscriber.

        Raises:
            OptionError: It refuses a value.
        """
        try:
            return self.factory(*self.arguments.args, **self.arguments.kwargs)
        except (TypeError, ValueError) as error:
            raise OptionError(f"{self.name}: {error}") from error


_registered: dict[str, Factory] = {}


def register(name: str, factory: Factory) -> None:
    """Offer a subscriber by name; a name registered later replaces an earlier one.

    Args:
        name: What it is asked for by.
        factory: The class, or a function that returns the subscriber.

    Raises:
        TypeError: The factory is not callable.
        ValueError: The name is empty or has ``=``, ``,`` or blanks in it.
    """
    if not callable(factory):
        raise TypeError(f"a factory is a class or a function, not {factory!r}")
    if not name or any(c in "=," or c.isspace() for c in name):
        raise ValueError(f"a subscriber's name has no '=', ',' or blanks in it, unlike {name!r}")
    _registered[name] = factory


def entries() -> dict[str, Entry]:
    """Return all subscribers that can be asked for, by name; none is imported for this.

    A registered one hides all others of its name; a standard one hides a distribution's.
    """
    found: dict[str, Entry] = {}
    for point in sorted(entry_points(group=GROUP), key=_distribution):
        found.setdefault(point.name, Entry(point.name, _distribution(point), point.load))
    for name, target in STANDARD.items():
        found[name] = Entry(name, "epochbus", EntryPoint(name, target, GROUP).load)
    for name in _registered:
        found[name] = Entry(name, "registered", partial(_registered.__getitem__, name))
    return dict(sorted(found.items()))


def _distribution(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "?"


def find(name: str) -> Factory:
    """Return what makes the subscriber of this name.

    Case, ``-`` and ``_`` make no difference, and the standard subscribers' class names
    do as well: ``early-stopping``, ``early_stopping``, ``EarlyStopping``.

    Raises:
        UnknownSubscriberError: There is none; names the nearest.
        ImportError: It needs something that is not installed.
    """
    known = entries()
    if name not in known:
        alike = {_plain(target.partition(":")[2]): key for key, target in STANDARD.items()}
        alike |= {_plain(key): key for key in known}
        canonical = alike.get(_plain(name))
        if canonical is None:
            hint = nearest(name.lower(), known) or f"; there are {', '.join(known)}"
            raise UnknownSubscriberError(f"no subscriber is called {name!r}{hint}")
        name = canonical
    return known[name].load()


def _plain(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()


def create(name: str, /, **options: object) -> object:
    """Make a subscriber from its name and options, as a configuration holds them.

    Raises:
        UnknownSubscriberError: There is none of this name.
        OptionError: It has no such option, lacks one, or refuses a value.
        ImportError: It needs something that is not installed.
    """
    factory = find(name)
    return _request(name, factory, options).make()


def parse(text: str) -> Request:
    """Read ``NAME[=ARG][,key=value...]``.

    ``ARG`` is the first option. Values get the types that the subscriber's signature
    declares; a piece without ``=`` continues the value before it, so lists can be given:
    ``early-stopping=val_acc,patience=3``, ``stop-on-nan=loss,val_loss``.

    Raises:
        UnknownSubscriberError: There is none of this name; names the nearest.
        OptionError: It has no such option, lacks one, or a value cannot be read.
        ImportError: It needs something that is not installed.
    """
    head, *pieces = text.split(",")
    name, given, argument = head.partition("=")
    factory = find(name.strip())
    parameters = inspect.signature(factory).parameters
    texts: dict[str, str] = {}
    last = ""
    if given:
        last = _first(name, parameters)
        texts[last] = argument
    for piece in pieces:
        key, equals, value = piece.partition("=")
        key = key.strip().replace("-", "_")
        if equals and key.isidentifier():
            _check_name(name, key, parameters)
            if key in texts:
                raise OptionError(f"{name}: {key} is given twice")
            texts[key] = value
            last = key
        elif last:
            texts[last] += f",{piece}"
        else:
            raise OptionError(f"{name}: expected key=value after the comma, not {piece!r}")
    options = {key: _read(name, factory, parameters, key, value) for key, value in texts.items()}
    return _request(name, factory, options)


def _first(name: str, parameters: Mapping[str, inspect.Parameter]) -> str:
    for key, parameter in parameters.items():
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            return key
    raise OptionError(f"{name} takes no argument")


def _check_name(name: str, key: str, parameters: Mapping[str, inspect.Parameter]) -> None:
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    if key not in parameters and not takes_any:
        hint = nearest(key, parameters) or f"; it has {', '.join(parameters) or 'none'}"
        raise OptionError(f"{name} has no option {key!r}{hint}")


def _read(
    name: str,
    factory: Factory,
    parameters: Mapping[str, inspect.Parameter],
    key: str,
    text: str,
) -> object:
    parameter = parameters.get(key)
    hint = resolve(parameter.annotation, factory) if parameter is not None else Any
    if parameter is not None and parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        hint = tuple[hint, ...]  # type: ignore[valid-type]  # built at run time
    try:
        return convert(text, hint)
    except ValueError as error:
        raise OptionError(f"{name}: {key} {error}") from None


def _request(name: str, factory: Factory, options: Mapping[str, object]) -> Request:
    """Bind options to the factory's parameters, whatever kind these are of."""
    signature = inspect.signature(factory)
    parameters = signature.parameters
    bound = signature.bind_partial()
    for key, value in options.items():
        _check_name(name, key, parameters)
        if key in parameters:
            bound.arguments[key] = value
        else:
            catch_all = next(p.name for p in parameters.values() if p.kind is p.VAR_KEYWORD)
            bound.arguments.setdefault(catch_all, {})[key] = value
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    for key, parameter in parameters.items():
        required = parameter.default is parameter.empty and parameter.kind not in variadic
        if required and key not in options:
            raise OptionError(f"{name} needs {key}, as in {name},{key}=...")
    bound.arguments = {key: bound.arguments[key] for key in parameters if key in bound.arguments}
    return Request(name, factory, bound)
