"""How a learning rate or a momentum goes over a run, as functions without memory.

A policy is called as ``policy(base, index, total)``: the value that the optimizer was
made with, the 0-based epoch or step, and how many of them there are (None where that is
not known). Since nothing is remembered, a resumed run has the same values.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar, Literal, Protocol

__all__ = [
    "Chain",
    "Cosine",
    "CosineRestart",
    "Cyclic",
    "Exp",
    "Fixed",
    "FlatCosine",
    "Inv",
    "Linear",
    "OneCycle",
    "Policy",
    "Poly",
    "Step",
    "WarmUp",
]

Curve = Literal["cos", "linear"]


class Policy(Protocol):
    """Any function of these three will do."""

    def __call__(self, base: float, index: int, total: int | None) -> float:
        """Return the value at an index."""


def anneal(start: float, end: float, share: float, curve: Curve = "cos") -> float:
    """Return the value at a share of the way from start to end."""
    if curve == "linear":
        return start + (end - start) * share
    return end + (start - end) * (1 + math.cos(math.pi * share)) / 2


def _known(total: int | None, policy: object) -> int:
    if total is None:
        raise ValueError(
            f"{type(policy).__name__} goes by the whole length of the run, which is not known"
            " here: give the schedule total=..."
        )
    return max(total, 1)


def _check_curve(curve: str) -> None:
    if curve not in {"cos", "linear"}:
        raise ValueError(f'curve must be "cos" or "linear", not {curve!r}')


@dataclass(frozen=True)
class Fixed:
    """The value as it is, or a multiple of it.

    Args:
        factor: what to multiply it with.
    """

    factor: float = 1.0

    def __call__(self, base: float, index: int, total: int | None) -> float:  # noqa: ARG002
        """Return the value at an index."""
        return base * self.factor


@dataclass(frozen=True)
class Step:
    """Multiply with gamma after every so many, or at each of some milestones.

    Args:
        at: a number of epochs or steps, or the 0-based ones at which it falls.
        gamma: what to multiply with.
        minimum: the value is never below.
    """

    at: int | Sequence[int]
    gamma: float = 0.1
    minimum: float | None = None

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            ValueError: an interval is not positive, or milestones are not in order.
        """
        if isinstance(self.at, int):
            if self.at < 1:
                raise ValueError(f"Step falls after every 1 or more, not {self.at!r}")
        elif list(self.at) != sorted(self.at):
            raise ValueError(f"milestones come in ascending order, not as {list(self.at)}")

    def __call__(self, base: float, index: int, total: int | None) -> float:  # noqa: ARG002
        """Return the value at an index."""
        falls = index // self.at if isinstance(self.at, int) else bisect_right(self.at, index)
        value = base * self.gamma**falls
        return value if self.minimum is None else max(value, self.minimum)


@dataclass(frozen=True)
class Exp:
    """``base * gamma ** index``."""

    gamma: float

    def __call__(self, base: float, index: int, total: int | None) -> float:  # noqa: ARG002
        """Return the value at an index."""
        value: float = base * self.gamma**index
        return value


@dataclass(frozen=True)
class Inv:
    """``base * (1 + gamma * index) ** -power``."""

    gamma: float
    power: float = 1.0

    def __call__(self, base: float, index: int, total: int | None) -> float:  # noqa: ARG002
        """Return the value at an index."""
        value: float = base * (1 + self.gamma * index) ** -self.power
        return value


@dataclass(frozen=True)
class Poly:
    """From base to a minimum as ``(1 - index / total) ** power``."""

    power: float = 1.0
    minimum: float = 0.0

    def __call__(self, base: float, index: int, total: int | None) -> float:
        """Return the value at an index."""
        share = min(index / _known(total, self), 1)
        value: float = (base - self.minimum) * (1 - share) ** self.power + self.minimum
        return value


@dataclass(frozen=True, kw_only=True)
class _ToTarget:
    """What ends at a target: a value, or a part of the base.

    Args:
        minimum: the value at the end.
        minimum_ratio: the same as a part of the base; give one of the two.
    """

    minimum: float | None = None
    minimum_ratio: float | None = None

    def __post_init__(self) -> None:
        if (self.minimum is None) == (self.minimum_ratio is None):
            raise ValueError(
                f"{type(self).__name__} needs one of minimum and minimum_ratio, and not both"
            )

    def target(self, base: float) -> float:
        """Return the value at the end."""
        if self.minimum_ratio is not None:
            return base * self.minimum_ratio
        assert self.minimum is not None
        return self.minimum


@dataclass(frozen=True, kw_only=True)
class Cosine(_ToTarget):
    """From base to the minimum along half a cosine."""

    curve: ClassVar[Curve] = "cos"

    def __call__(self, base: float, index: int, total: int | None) -> float:
        """Return the value at an index."""
        share = min(index / _known(total, self), 1)
        return anneal(base, self.target(base), share, self.curve)


@dataclass(frozen=True, kw_only=True)
class Linear(Cosine):
    """From base to the minimum along a straight line."""

    curve: ClassVar[Curve] = "linear"


@dataclass(frozen=True, kw_only=True)
class FlatCosine(_ToTarget):
    """Base for the first part of the run, then along half a cosine to the minimum.

    Args:
        start: the part of the run that is flat, from 0 to below 1.
    """

    start: float = 0.75

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            ValueError: there is no target, or two, or the start is no part of the run.
        """
        super().__post_init__()
        if not 0 <= self.start < 1:
            raise ValueError(f"start is a part of the run, 0 or more and below 1: {self.start!r}")

    def __call__(self, base: float, index: int, total: int | None) -> float:
        """Return the value at an index."""
        total = _known(total, self)
        flat = round(total * self.start)
        if index < flat:
            return base
        share = min((index - flat) / max(total - flat, 1), 1)
        return anneal(base, self.target(base), share)


@dataclass(frozen=True, kw_only=True)
class CosineRestart(_ToTarget):
    """Half a cosine again and again.

    Args:
        periods: how long each is.
        weights: with what part of the way down each begins; 1 for all by default.
    """

    periods: Sequence[int]
    weights: Sequence[float] | None = None

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            ValueError: there is no target, or two; a period is empty; the weights are fewer.
        """
        super().__post_init__()
        if not self.periods or min(self.periods) < 1:
            raise ValueError(f"each period is 1 or more long, not {list(self.periods)}")
        if self.weights is not None and len(self.weights) != len(self.periods):
            raise ValueError(f"{len(self.periods)} periods have {len(self.weights)} weights")

    def __call__(self, base: float, index: int, total: int | None) -> float:  # noqa: ARG002
        """Return the value at an index; after the last period, the one at its end."""
        ends = list(accumulate(self.periods))
        period = min(bisect_right(ends, index), len(ends) - 1)
        length = self.periods[period]
        share = min((index - (ends[period] - length)) / length, 1)
        weight = 1.0 if self.weights is None else self.weights[period]
        end = self.target(base)
        return anneal(end + weight * (base - end), end, share)


@dataclass(frozen=True)
class Cyclic:
    """Up and down again, several times over the run.

    Args:
        ratios: the peak and the end of a cycle as multiples of the base.
        cycles: how many there are.
        up: the part of a cycle that goes up.
        curve: ``cos`` or ``linear``.
        gamma: how far each cycle keeps from the base, beside the one before it.
    """

    ratios: tuple[float, float] = (10.0, 1e-4)
    cycles: int = 1
    up: float = 0.4
    curve: Curve = "cos"
    gamma: float = 1.0

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            ValueError: one of them makes no sense.
        """
        _check_curve(self.curve)
        if self.cycles < 1:
            raise ValueError(f"there is at least one cycle, not {self.cycles!r}")
        if not 0 < self.up < 1:
            raise ValueError(f"up is the part of a cycle that goes up: {self.up!r}")

    def __call__(self, base: float, index: int, total: int | None) -> float:
        """Return the value at an index."""
        length = max(_known(total, self) // self.cycles, 1)
        rise = int(self.up * length)
        cycle, at = divmod(index, length)
        scale = self.gamma**cycle
        peak = 1 - scale + self.ratios[0] * scale
        if at < rise:
            return anneal(base, base * peak, at / rise, self.curve)
        share = (at - rise) / (length - rise)
        return anneal(base * peak, base * self.ratios[1], share, self.curve)


@dataclass(frozen=True)
class OneCycle:
    """Up to a peak and down to almost nothing, as in *Super-Convergence*.

    The base is the peak. For a momentum, which goes the other way, let it start at the
    base: ``OneCycle(divide=0.95 / 0.85, start_low=False)`` falls from the base to
    ``base / divide`` and rises again.

    Args:
        divide: the run starts at the peak divided by this.
        divide_end: it ends at its start divided by this.
        up: the part of the run that goes up.
        curve: ``cos`` or ``linear``.
        three_phases: come down to the start as steeply as up, then to the end.
        start_low: whether it goes up first; otherwise it is turned over, and ends where it
            starts.
    """

    divide: float = 25.0
    divide_end: float = 1e4
    up: float = 0.3
    curve: Curve = "cos"
    three_phases: bool = False
    start_low: bool = True

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            ValueError: one of them makes no sense.
        """
        _check_curve(self.curve)
        if not 0 < self.up < 1:
            raise ValueError(f"up is the part of the run that goes up: {self.up!r}")

    def __call__(self, base: float, index: int, total: int | None) -> float:
        """Return the value at an index."""
        last = _known(total, self) - 1
        low = base / self.divide
        start, peak, end = low, base, low / self.divide_end
        if not self.start_low:
            start, peak, end = base, low, base
        rise = self.up * (last + 1) - 1
        phases = [(rise, start, peak), (last, peak, end)]
        if self.three_phases:
            phases = [(rise, start, peak), (2 * rise, peak, start), (last, start, end)]
        begin = 0.0
        for stop, first, then in phases[:-1]:
            if index <= stop:
                return anneal(first, then, (index - begin) / (stop - begin or 1), self.curve)
            begin = stop
        stop, first, then = phases[-1]
        share = min((index - begin) / (stop - begin or 1), 1)
        return anneal(first, then, share, self.curve)


@dataclass(frozen=True)
class Chain:
    """One policy after another, each as if the run began and ended with it.

    Args:
        policies: in their order.
        at: where the second begins, the third, and so on.
    """

    policies: Sequence[Policy]
    at: Sequence[int]

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            ValueError: there are not as many beginnings as policies after the first, or they
                are not in order.
        """
        if len(self.at) != len(self.policies) - 1:
            raise ValueError(
                f"{len(self.policies)} policies have {len(self.policies) - 1} places where one"
                f" follows another, not {len(self.at)}"
            )
        if list(self.at) != sorted({*self.at}) or (self.at and self.at[0] < 1):
            raise ValueError(f"each policy begins after the one before it: {list(self.at)}")

    def __call__(self, base: float, index: int, total: int | None) -> float:
        """Return the value at an index."""
        which = bisect_right(self.at, index)
        begin = self.at[which - 1] if which else 0
        end = self.at[which] if which < len(self.at) else total
        return self.policies[which](base, index - begin, None if end is None else end - begin)


@dataclass(frozen=True)
class WarmUp:
    """Multiply what a policy says, at first with a small ratio.

    Args:
        length: how many steps (or epochs) it takes.
        ratio: what to multiply with at the very first.
        curve: ``linear`` and ``exp`` grow from it to 1, ``constant`` stays.
        by: whether the length counts ``step`` or ``epoch``.
    """

    length: int
    ratio: float = 0.1
    curve: Literal["constant", "linear", "exp"] = "linear"
    by: Literal["step", "epoch"] = "step"

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            ValueError: one of them makes no sense.
        """
        if self.length < 1:
            raise ValueError(f"a warm-up is 1 or more long, not {self.length!r}")
        if not 0 < self.ratio <= 1:
            raise ValueError(f"a warm-up's ratio is above 0 and at most 1, not {self.ratio!r}")
        if self.curve not in {"constant", "linear", "exp"}:
            raise ValueError(
                f'a warm-up\'s curve is "constant", "linear" or "exp", not {self.curve!r}'
            )
        if self.by not in {"step", "epoch"}:
            raise ValueError(f'a warm-up is by "step" or by "epoch", not by {self.by!r}')

    def factor(self, index: int) -> float:
        """Return what to multiply with."""
        if index >= self.length:
            return 1.0
        if self.curve == "constant":
            return self.ratio
        left = 1 - index / self.length
        return 1 - left * (1 - self.ratio) if self.curve == "linear" else self.ratio**left
