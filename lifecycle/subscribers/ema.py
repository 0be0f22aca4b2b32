"""An exponential moving average of the parameters, swapped in for evaluation."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, ClassVar

from lifecycle.subscribers.checks import whole
from lifecycle.subscribers.memory import Memory
from lifecycle.subscribers.snapshot import blend, capture, is_stateful, restore, widened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lifecycle.loop import Loop

__all__ = ["EMA"]


class EMA(Memory):
    """Keep a moving average of an object's arrays, and evaluate with it.

    Keras: ``SwapEMAWeights``. OpenMMLab: ``EMAHook``.

    After every step ``average = decay * average + (1 - decay) * value``. Test and predict
    passes run with the average; what was there before comes back at their end, also
    after an error. Elsewhere: ``with ema.applied(loop): ...``.

    Args:
        target: The name of one of the loop's objects, or an object: one with `state_dict`
            and `load_state_dict`, or a dict of arrays.
        decay: How much of the average is kept at each step, from 0 to below 1.
        every: Take each n-th step only.
        warmup: Keep less at first, ``(1 + n) / (10 + n)`` after n updates, so that the
            random start is soon forgotten.
        evaluate: Whether to swap the average in for test and predict passes.
    """

    priority: ClassVar[str] = "HIGH"
    remembers: ClassVar[tuple[str, ...]] = ("average", "updates")

    def __init__(
        self,
        target: Any = "model",
        *,
        decay: float = 0.999,
        every: int = 1,
        warmup: bool = False,
        evaluate: bool = True,
    ) -> None:
        if not 0 <= decay < 1:
            raise ValueError(f"decay must be 0 or more and below 1, not {decay!r}")
        if not isinstance(target, str | dict) and not is_stateful(target):
            raise TypeError(
                "EMA averages a dict of arrays, or an object with state_dict and"
                f" load_state_dict, not {target!r}; or name one of the loop's objects"
            )
        self.target = target
        self.decay = decay
        self.every = whole(every, 1, "every is a number of steps")
        self.warmup = warmup
        self.evaluate = evaluate
        self._saved: list[Any] = []
        self.reset()

    def reset(self) -> None:
        self.average: Any = None
        """The average as a tree of arrays, None before the first step."""
        self.updates = 0
        """How many times it was updated."""

    def __repr__(self) -> str:
        return f"<EMA decay={self.decay} updates={self.updates}>"

    @property
    def active(self) -> bool:
        """Whether the average stands in the object's place now."""
        return any(saved is not None for saved in self._saved)

    def on_train_begin(self, loop: Loop) -> None:
        self.begin(loop)
        self._value(loop)  # a wrong name is told before any work is done

    def on_train_batch_end(self, loop: Loop, step: int, skipped: bool) -> None:
        if (step + 1) % self.every == 0 and not skipped:
            self.follow(loop)
            self.update(loop)

    def on_test_begin(self, loop: Loop) -> None:
        self._enter_pass(loop)

    def on_test_end(self, loop: Loop) -> None:
        self._leave_pass(loop)

    def on_predict_begin(self, loop: Loop) -> None:
        self._enter_pass(loop)

    def on_predict_end(self, loop: Loop) -> None:
        self._leave_pass(loop)

    def update(self, loop: Loop) -> None:
        """Take the present values into the average."""
        value = self._value(loop)
        if self.average is None:
            self.average = widened(value)
        else:
            n = self.updates
            keep = min(self.decay, (1 + n) / (10 + n)) if self.warmup else self.decay
            self.average = self.blended(value, keep)
        self.updates += 1

    def blended(self, value: Any, keep: float) -> Any:
        """Return ``keep * average + (1 - keep) * value``; the average may be changed in place."""
        return blend(self.average, value, keep)

    @contextlib.contextmanager
    def applied(self, loop: Loop) -> Iterator[None]:
        """Put the average in place inside a ``with`` block, and back what was there after it."""
        self._swap_in(loop)
        try:
            yield
        finally:
            self._swap_out(loop)

    def _enter_pass(self, loop: Loop) -> None:
        if self.evaluate and self.owned_by(loop):
            self._swap_in(loop)

    def _leave_pass(self, loop: Loop) -> None:
        if self.evaluate and self.owned_by(loop) and self._saved:
            self._swap_out(loop)

    def _swap_in(self, loop: Loop) -> None:
        # Nested passes stack up; only the outermost one changes anything.
        holder, key = self._where(loop)
        if self._saved or self.average is None:
            self._saved.append(None)
            return
        self._saved.append(capture(holder[key]))
        try:
            restore(holder, key, self.average)
        except BaseException:
            self._swap_out(loop)
            raise

    def _swap_out(self, loop: Loop) -> None:
        saved = self._saved.pop()
        if saved is not None:
            holder, key = self._where(loop)
            restore(holder, key, saved)

    def _where(self, loop: Loop) -> tuple[Any, Any]:
        if not isinstance(self.target, str):
            return [self.target], 0
        if self.target not in loop.objects:
            there = ", ".join(map(repr, loop.objects)) or "none"
            raise LookupError(
                f"EMA: the loop has no object {self.target!r}; it has {there}."
                ' Loop(objects={"model": ...}) gives it one'
            )
        return loop.objects, self.target

    def _value(self, loop: Loop) -> Any:
        holder, key = self._where(loop)
        thing = holder[key]
        return thing.state_dict() if is_stateful(thing) else thing
