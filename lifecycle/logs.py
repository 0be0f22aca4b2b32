"""The mapping of metrics that travels with the points, and its running means.

Values may live on a device: nothing is copied to the host before someone reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from numbers import Real
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["REDUCTIONS", "Logs", "Means", "admit", "batch_size"]

REDUCTIONS: Final = ("mean", "sum", "min", "max", "last")

FLOAT32: Final = 4
"""Bytes of the narrowest number that is added up."""

PLAIN: Final = frozenset({float, int, bool, str, type(None)})
"""Types whose values read as they are."""


class Logs(MutableMapping[str, Any]):
    """Metrics by name, seen and changed by every subscriber in order.

    Reading an array of one element gives a Python float; that is when its value is
    fetched from its device, once. Anything else reads as it was put in.

    Args:
        values: what it holds at first.
        means: the running means of the pass, for `mean`.
    """

    __slots__ = ("_means", "_raw", "_read")

    def __init__(self, values: Mapping[str, Any] | None = None, means: Means | None = None) -> None:
        self._raw: dict[str, Any] = dict(values) if values else {}
        self._read: dict[str, Any] | None = None  # made when there is something to keep
        self._means = means

    def __getitem__(self, key: str) -> Any:
        """Read a value.

        Raises:
            KeyError: there is none; the message lists those that there are.
        """
        try:
            value = self._raw[key]
        except KeyError:
            there = ", ".join(map(repr, self._raw)) or "nothing yet"
            raise KeyError(f"{key!r} is not in the logs, which hold {there}") from None
        if value.__class__ in PLAIN:
            return value
        if self._read is None:
            self._read = {}
        if key not in self._read:
            self._read[key] = read(value)
        return self._read[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._raw[key] = value
        if self._read:
            self._read.pop(key, None)

    def __delitem__(self, key: str) -> None:
        del self._raw[key]
        if self._read:
            self._read.pop(key, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)

    def __contains__(self, key: object) -> bool:
        return key in self._raw  # Mapping's own would read the value

    def __repr__(self) -> str:
        return f"Logs({dict(self)!r})"

    def raw(self, key: str) -> Any:
        """Return a value as it is, perhaps still on its device (detached from any graph)."""
        return self._raw[key]

    def mean(self, key: str) -> float:
        """Return the running mean of a metric over the pass so far, this batch included.

        Where there is no batch, as at ``epoch_end``, it is the value itself.

        Raises:
            KeyError: the metric is not averaged. What subscribers put into the logs of a
                batch isn't; ``loop.log`` is the way to have it averaged.
        """
        if self._means is None:
            return float(self[key])
        return float(read(self._means.result(key)))

    def take(self, other: Logs, prefix: str = "") -> None:
        """Take over another's values under a prefix; what it has read is not read again."""
        known = other._read or {}
        for key, value in other._raw.items():
            self[prefix + key] = known.get(key, value)

    def plain(self) -> dict[str, Any]:
        """Return all values, read."""
        return {key: self[key] for key in self._raw}


def read(value: Any) -> Any:
    """Return the Python float in an array of one element, and anything else as it is."""
    shape = getattr(value, "shape", None)
    if shape is None or not hasattr(value, "dtype"):
        return value
    if any(length != 1 for length in shape):
        return value
    try:
        return float(value)
    except (TypeError, ValueError):
        return value  # such as an array of one str


def admit(key: str, value: Any) -> Any:
    """Return a metric as it is kept: a Python number, or a detached array of no dimension.

    Raises:
        TypeError: it is not a number; the message names the key and the type.
    """
    if isinstance(value, _NUMBERS):
        return value
    if isinstance(value, Real):  # NumPy's scalars, fractions
        return float(value)
    ndim = getattr(value, "ndim", None)
    dtype = getattr(value, "dtype", None)
    if ndim is None or dtype is None or getattr(dtype, "kind", "f") in "OSUMmc":
        raise TypeError(f"metric {key!r} must be a number, not {_kind(value)}")
    if ndim:
        if any(length != 1 for length in value.shape):
            shape = tuple(value.shape)
            raise TypeError(
                f"metric {key!r} must be a number, not {_kind(value)} of shape {shape};"
                " reduce it first"
            )
        value = value.reshape(())
    if getattr(value, "requires_grad", False):
        value = value.detach()
    return value


def _kind(value: object) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


_ROWS: Final = (tuple, list)  # `tuple | list` would make a new union for each batch
_NUMBERS: Final = (float, int)


def batch_size(data: Any) -> int:
    """Return the length of the first array in a batch; 1 where there is none."""
    while data.__class__ not in PLAIN:
        shape = getattr(data, "shape", None)
        if shape is not None:
            return int(shape[0]) if len(shape) else 1
        if isinstance(data, _ROWS):
            data = data[0] if data else None
        elif hasattr(data, "values") and hasattr(data, "keys"):
            data = next(iter(data.values()), None)
        else:
            break
    return 1


class Mean:
    """The weighted mean of a metric, kept where its values are.

    Values of one weight are added up first and weighted together: one addition a batch.
    """

    __slots__ = ("count", "known", "run", "total", "unit", "weight")

    reduce: Final = "mean"
    saved: Final = ("count", "run", "total", "unit", "weight")

    def __init__(self) -> None:
        self.total: Any = 0.0
        self.weight: float = 0
        self.run: Any = 0.0
        """The sum since the weight last changed; never an array of the caller's."""
        self.unit: float = 1
        """The weight of each value in `run`."""
        self.count = 0
        """How many values are in `run`."""
        self.known: type[Any] | None = None
        """The class of the arrays in `run`, where it adds in place and refuses other shapes."""

    def add(self, value: Any, weight: float) -> None:
        """Count in a value that was admitted."""
        if weight != self.unit:
            self._settle(weight)
        self.run += value  # in place where the array allows it
        self.count += 1

    def add_any(self, key: str, value: Any, weight: float) -> None:
        """Count in a value that is not known to be a number."""
        if value.__class__ is self.known and not value.ndim:
            value = value.detach()
        else:
            value = admit(key, value)
        if weight != self.unit:
            self._settle(weight)
        if self.known is None:  # a half-precision sum would soon stand still; or it is loaded,
            self.run = self.run + _wide(value)  # and on another device
            self.count += 1
        else:
            self.add(value, weight)
        if value.__class__ is not self.known:
            self.known = value.__class__ if hasattr(value, "requires_grad") else None

    def _settle(self, unit: float) -> None:
        if self.count:
            self.total = self.total + self.run * self.unit
            self.weight += self.count * self.unit
        self.run, self.count, self.unit, self.known = 0.0, 0, unit, None

    def state(self) -> dict[str, Any]:
        """Return what to go on from, arrays as they are: a float would divide differently."""
        values = {name: getattr(self, name) for name in self.saved}
        return {n: value + 0 if hasattr(value, "dtype") else value for n, value in values.items()}

    def result(self) -> Any:
        """The mean so far."""
        if not self.weight:
            return self.run / self.count if self.count else 0.0
        weight = self.weight + self.count * self.unit
        return (self.total + self.run * self.unit) / weight


class Fold:
    """The sum, the least, the greatest or the last of a metric."""

    __slots__ = ("combine", "reduce", "total", "unit")

    saved: Final = ("total",)

    def __init__(self, reduce: str) -> None:
        self.reduce = reduce
        self.combine = _FOLDS[reduce]
        self.total: Any = None
        self.unit = None  # no weight counts, so that each value goes through `add_any`

    def add(self, value: Any, weight: float) -> None:  # noqa: ARG002 -- as Mean's
        """Count in a value that was admitted."""
        value = _wide(value)
        if hasattr(value, "dtype"):
            value = value + 0  # the caller may write to its array again
        self.total = value if self.total is None else self.combine(self.total, value)

    def add_any(self, key: str, value: Any, weight: float) -> None:
        """Count in a value that is not known to be a number."""
        self.add(admit(key, value), weight)

    def state(self) -> dict[str, Any]:
        """Return what to go on from, as a plain number."""
        return {"total": read(self.total)}

    def result(self) -> Any:
        """The value so far."""
        return self.total


def _wide(value: Any) -> Any:
    """Return a value in at least float32."""
    dtype = getattr(value, "dtype", None)
    if dtype is None or getattr(dtype, "itemsize", 8) >= FLOAT32:
        return value
    return value.float() if hasattr(value, "float") else value.astype("float32")


def _sum(a: Any, b: Any) -> Any:
    return a + b


def _min(a: Any, b: Any) -> Any:
    if hasattr(a, "clip"):  # an array: comparing it would wait for its device
        return a.clip(None, b)
    return b.clip(None, a) if hasattr(b, "clip") else min(a, b)


def _max(a: Any, b: Any) -> Any:
    if hasattr(a, "clip"):
        return a.clip(b, None)
    return b.clip(a, None) if hasattr(b, "clip") else max(a, b)


def _last(_: Any, b: Any) -> Any:
    return b


_FOLDS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "sum": _sum,
    "min": _min,
    "max": _max,
    "last": _last,
}


class Means:
    """What the metrics of a pass come to: means weighted by batch size, or other reductions."""

    __slots__ = ("_cells",)

    def __init__(self) -> None:
        self._cells: dict[str, Mean | Fold] = {}

    def __bool__(self) -> bool:
        return bool(self._cells)

    def add(self, metrics: Mapping[str, Any], weight: float) -> None:
        """Fold the metrics of one batch in.

        Raises:
            TypeError: one of them is not a number.
        """
        cells = self._cells
        for key, value in metrics.items():
            cell = cells[key] if key in cells else self.open(key)
            kind = value.__class__
            if cell.unit == weight and (
                kind is float or (kind is cell.known and not value.requires_grad)
            ):  # what nearly every batch comes to, without a call
                try:
                    cell.run += value
                except RuntimeError:  # an array of another shape than before
                    cell.add_any(key, value, weight)
                else:
                    cell.count += 1
            else:
                cell.add_any(key, value, weight)

    def open(self, key: str, reduce: str = "mean") -> Mean | Fold:
        """Begin to keep a metric, or return what keeps it already.

        Raises:
            TypeError: its name is not a str.
            ValueError: there is no such reduction, or the metric is reduced in another way.
        """
        cell = self._cells.get(key)
        if cell is not None and cell.reduce == reduce:
            return cell
        if reduce not in REDUCTIONS:
            raise ValueError(f"reduce must be one of {', '.join(REDUCTIONS)}, not {reduce!r}")
        if not isinstance(key, str):
            raise TypeError(f"a metric's name must be a str, not {key!r}")
        if cell is not None:
            raise ValueError(
                f"metric {key!r} is reduced by {cell.reduce} in this pass, not by {reduce}"
            )
        cell = self._cells[key] = Mean() if reduce == "mean" else Fold(reduce)
        return cell

    def result(self, key: str) -> Any:
        """Return what a metric comes to so far, perhaps on its device.

        Raises:
            KeyError: it is not kept.
        """
        try:
            return self._cells[key].result()
        except KeyError:
            there = ", ".join(map(repr, self._cells)) or "none yet"
            raise KeyError(
                f"{key!r} is not averaged; loop.log would have it so. Averaged are {there}"
            ) from None

    def results(self) -> dict[str, Any]:
        """Return what all come to."""
        return {key: cell.result() for key, cell in self._cells.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return all of it as numbers and arrays, from which adding goes on exactly."""
        return {key: {"reduce": cell.reduce, **cell.state()} for key, cell in self._cells.items()}

    def load_state_dict(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        """Go on from a saved state."""
        self._cells.clear()
        for key, saved in state.items():
            cell = self.open(key, saved["reduce"])
            for name in cell.saved:
                setattr(cell, name, saved[name])
