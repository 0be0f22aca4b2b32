"""The sender where another framework runs the batches.

A bridge tells a `Facade` what happens in its framework; the facade turns it into points with
the same machinery as `Loop`: the same payloads, counters, means, requests and ends. What a
framework cannot do for a subscriber, the facade refuses by name.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

from lifecycle.logs import Logs, Means
from lifecycle.loop import Loop
from lifecycle.passes import fill, predict_stage, test_stage
from lifecycle.state import StopRequest
from lifecycle.training import Training

if TYPE_CHECKING:
    from eventbus import Bus
    from lifecycle.batches import Pass
    from lifecycle.stage import Stage

__all__ = ["Facade", "Given", "Later"]


class Later:
    """A number that is fetched when someone reads it, as `Logs` reads arrays.

    Args:
        fetch: returns the number.
    """

    shape: Final = ()
    ndim: Final = 0
    dtype: Final = "float64"

    __slots__ = ("_fetch",)

    def __init__(self, fetch: Callable[[], float]) -> None:
        self._fetch = fetch

    def __float__(self) -> float:
        return float(self._fetch())


class Given(Means):
    """Means that the framework keeps; beside them, those of what ``loop.log`` is given."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        super().__init__()
        self.values: Mapping[str, Any] = {}
        """What the framework has last told."""

    def __bool__(self) -> bool:
        return bool(self.values) or super().__bool__()

    def result(self, key: str) -> Any:
        """Return what a metric comes to so far."""
        return self.values[key] if key in self.values else super().result(key)

    def results(self) -> dict[str, Any]:
        """Return what all come to."""
        return {**self.values, **super().results()}


class Facade(Loop):
    """The loop that subscribers see; a bridge drives it.

    Args:
        bus: where the points are sent; the default bus unless given.
        objects: what belongs to the run by name, beside what the framework has.
    """

    framework: ClassVar[str]
    """The framework's name, for messages."""

    runs_by: ClassVar[str]
    """What to call in the framework instead of ``fit``, ``evaluate``, ``predict``."""

    def __init__(self, bus: Bus | None = None, objects: Mapping[str, Any] | None = None) -> None:
        super().__init__(objects=objects, bus=bus)
        self.training: Training | None = None
        self.whole = True
        """Whether the batches of the epoch came to their end."""
        self.stepping = False
        """Whether a batch was begun and has not ended."""
        self._open: list[tuple[Stage, Pass]] = []
        """The test and predict passes that are open."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.state!r}>"

    # -- what a bridge must say

    @abstractmethod
    def halt(self) -> None:
        """Have the framework begin no further batch, in training or else in the pass."""

    @abstractmethod
    def halt_epoch(self) -> None:
        """Have the framework end the innermost pass, and go on after it."""

    def rate(self) -> Any:
        """Return the learning rate, None where there is none."""

    # -- training

    def train_begins(
        self,
        epochs: int | None,
        steps: int | None,
        *,
        initial_epoch: int = 0,
        steps_done: int = 0,
        max_steps: int | None = None,
        resume: object = False,
    ) -> int:
        """Send ``train_begin``; return the first epoch, which ``resume`` may have moved."""
        if self.stages:  # what was broken where no one could tell us
            self.fails(RuntimeError(f"{self.framework} has left a run without ending it"))
        self.training = training = Training(
            self,
            epochs=epochs,
            initial_epoch=initial_epoch,
            steps_per_epoch=steps,
            max_steps=max_steps,
        )
        training.enter()
        if steps_done:
            self.state.train, self.state.steps_before = None, steps_done
        training.begin(resume)
        if steps_done:
            self.state.steps_before = steps_done
        if training.stage.stopped:
            self.halt()
        return training.initial_epoch

    def epoch_begins(self, index: int, means: Means | None = None) -> None:
        """Send ``epoch_begin``.

        Args:
            index: of the epoch.
            means: what keeps the means of its metrics.
        """
        training, position, state = self.training, self.position, self.state
        assert training is not None
        assert position is not None
        saved = position.saved
        if saved is not None and saved["open"]:  # the framework begins this epoch anew
            state.steps_before -= saved["batch"]
            position.saved = {**saved, "batch": 0, "means": {}, "logs": {}}
        epoch = training.open_epoch(index)
        position.saved, position.drawing = None, True
        if means is not None:
            epoch.means = means
        epoch.within = self.whole = True

    def epoch_over(self) -> None:
        """Note that no further batch of the epoch comes; its metrics are in its logs then."""
        training = self.training
        assert training is not None
        epoch = training.epoch
        if epoch is None or epoch.over:
            return
        epoch.within = self.stepping = False
        steps = self.state.steps_per_epoch
        broken_off = epoch.cut or training.stage.stopped
        self.whole = epoch.done == steps or not broken_off
        training.fill(epoch)

    def epoch_ends(self) -> Logs:
        """Send ``epoch_end``; return the logs that it carried."""
        training = self.training
        assert training is not None
        self.epoch_over()
        epoch = training.epoch
        assert epoch is not None
        resumable = not self.whole and training.stage.stopped
        training.close_epoch(partial=not self.whole, resumable=resumable)
        return epoch.logs

    def train_ends(self) -> None:
        """Send ``train_end``."""
        if self.training is not None:
            with self.training.stage:
                pass

    # -- passes over other data

    def test_begins(self, steps: int | None, means: Means | None = None) -> None:
        """Send ``test_begin``."""
        epoch = None
        if self.training is not None and self.training.epoch is not None:
            epoch = self.state.epoch
        stage, made = test_stage(self, None, epoch)
        self._begin(stage, made, means, (None, epoch, steps))

    def predict_begins(self, steps: int | None) -> None:
        """Send ``predict_begin``."""
        stage, made = predict_stage(self)
        self._begin(stage, made, None, (steps,))

    def _begin(
        self, stage: Stage, made: Pass, means: Means | None, payload: tuple[Any, ...]
    ) -> None:
        if means is not None:
            made.means = means
        self._open.append((stage, made))
        made.within = True
        stage.begin(*payload)
        if stage.stopped:
            self.halt()

    def pass_ends(self) -> Logs:
        """Send ``test_end`` or ``predict_end``; return the logs that it carried."""
        stage, made = self._open.pop()
        made.within = self.stepping = False
        with stage:
            fill(made)
        training = self.training
        if stage.kind == "test" and training is not None and training.epoch is not None:
            if stage.outcome == "completed":
                training.epoch.logs.take(made.logs, "val_")
            else:
                self.whole = False
        return made.logs

    # -- batches

    def batch_begins(self, batch: int, data: Any = None) -> None:
        """Send the begin of a batch of the innermost pass."""
        made = self.state.passes[-1]
        made.done = batch
        self.stepping = True
        if made.begin.live:  # type: ignore[attr-defined]
            made.open(data)  # type: ignore[attr-defined]

    def batch_ends(
        self, batch: int, data: Any, outputs: Any, *, steps: bool = False
    ) -> Logs | None:
        """Send the end of a batch of the innermost pass.

        Args:
            batch: its index.
            data: the batch.
            outputs: what its step has returned.
            steps: whether it is one that trains.

        Returns:
            The logs that it carried, None where nobody listens.
        """
        made: Any = self.state.passes[-1]
        made.done = batch + 1
        self.stepping = False
        if not made.end.live:
            if self.state.attention or made.pending:
                made.finish(data, outputs)
            return None
        if not made.begun:
            made.current, made.begun = Logs(None, made.means), True
        if steps:
            rate = self.rate()
            if rate is not None:
                made.current["lr"] = rate
        made.finish(data, outputs)
        logs: Logs = made.current
        return logs

    # -- failure

    def fails(self, error: BaseException, kind: str = "train") -> None:
        """End the stages that an error has broken.

        Args:
            error: what came out of the framework.
            kind: ``train`` for all that are open, ``test`` or ``predict`` for the innermost
                one if it is of that kind.
        """
        if self.stepping and self.state.passes:
            self.state.passes[-1].broken = True  # type: ignore[attr-defined]
        self.stepping = False
        for stage in reversed(self.stages):
            if kind not in ("train", stage.kind):
                break
            stage.close(error)
            self._open = [each for each in self._open if each[0] is not stage]
            if kind != "train":
                break

    # -- control

    def ask(self, request: StopRequest) -> None:
        """Take in a request to stop, and hand it on to the framework."""
        super().ask(request)
        if self.stages:
            self.halt()

    def stopped_by(self, who: str) -> None:
        """Take in that something of the framework's own has asked it to stop."""
        if self.training is not None and not self.training.stage.stopped:
            super().ask(StopRequest(f"{who} was set", self.framework))

    def stop_epoch(self) -> None:
        """Have the innermost pass end after the batch under way."""
        super().stop_epoch()
        self.halt_epoch()

    # -- what it refuses

    def _refusal(self, name: str, instead: str) -> RuntimeError:
        return RuntimeError(
            f"loop.{name} is not to be had here: {self.framework} runs the batches of this loop;"
            f" {instead}"
        )

    def fit(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: the framework runs the batches."""
        raise self._refusal("fit", f"call {self.runs_by}")

    def evaluate(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: the framework runs the batches."""
        raise self._refusal("evaluate", f"call {self.runs_by}")

    def predict(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: the framework runs the batches."""
        raise self._refusal("predict", f"call {self.runs_by}")

    def epochs(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: the framework runs the batches."""
        raise self._refusal("epochs", f"call {self.runs_by}")

    def batches(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: the framework runs the batches."""
        raise self._refusal("batches", f"call {self.runs_by}")

    def skip_batch(self) -> NoReturn:
        """Refuse: the framework offers no way to leave out a batch."""
        raise self._refusal("skip_batch", "leave batches out of the data instead")
