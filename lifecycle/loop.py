"""Loop: runs training, tests and predictions, and sends the points of their life."""

from __future__ import annotations

import sys
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self

from lifecycle.byhand import ByHand
from lifecycle.data import Feed, feeds
from lifecycle.fit import Fit, Plan, whole_number
from lifecycle.passes import run_predict, run_test
from lifecycle.sender import Sender
from lifecycle.state import State, StopRequest
from lifecycle.training import Training

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from types import TracebackType

    from eventbus import Bus
    from lifecycle.data import Data
    from lifecycle.position import Position
    from lifecycle.span import Pass, Span
    from lifecycle.stage import Stage
    from lifecycle.subscribers import History

__all__ = ["Loop"]

COUNTERS = frozenset({"epoch", "batch", "step", "update"})

RECORDER = "lifecycle.subscribers.history:History"
"""What keeps the history: a subscriber like any other, imported when a run begins."""


class Loop(Sender):
    """Trains, tests and predicts, and sends the points of a run's life.

    Args:
        train_step: called with each batch of ``fit``; returns a mapping of metrics, or None.
        test_step: the same for ``evaluate`` and validation.
        predict_step: called with each batch of ``predict``; returns anything.
        objects: what belongs to the run by name (model, optimizer, ...): subscribers reach
            them as ``loop.objects``, a checkpoint saves them.
        bus: where the points are sent; the default bus unless given. Points that it lacks
            are declared on it.

    Raises:
        TypeError: a step is not callable.
    """

    def __init__(
        self,
        train_step: Callable[[Any], Any] | None = None,
        test_step: Callable[[Any], Any] | None = None,
        predict_step: Callable[[Any], Any] | None = None,
        *,
        objects: Mapping[str, Any] | None = None,
        bus: Bus | None = None,
    ) -> None:
        steps = {"train": train_step, "test": test_step, "predict": predict_step}
        for name, step in steps.items():
            if step is not None and not callable(step):
                raise TypeError(f"{name}_step must be a function of the batch, not {step!r}")
        super().__init__(bus)
        self.train_step, self.test_step, self.predict_step = train_step, test_step, predict_step
        self.objects: dict[str, Any] = dict(objects or {})
        self.state = State()
        """Where the loop stands."""
        self.history: History | None = None
        """The history of the run under way, or of the last one."""
        self.stages: list[Stage] = []
        self.spans: list[Span] = []
        self.position: Position | None = None
        self.thread: int | None = None
        self.reported: BaseException | None = None
        self.heeded = 0
        self._by_hand = ByHand(self)

    def __repr__(self) -> str:
        return f"<Loop {self.state!r}>"

    # -- running

    def fit(  # noqa: PLR0913 -- all of it is asked for by name
        self,
        data: Data,
        *,
        epochs: int | None = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_data: Data | Mapping[str, Data] | None = None,
        validation_freq: int | Collection[int] = 1,
        validation_steps: int | None = None,
        validation_every_steps: int | None = None,
        validate_on_stop: bool = False,
        max_steps: int | None = None,
        max_time: float | None = None,
        subscribers: Iterable[object] = (),
        resume: object = False,
    ) -> History:
        """Train.

        Args:
            data: an iterable of batches; an iterator, which goes on from epoch to epoch; or a
                function of the epoch that returns either.
            epochs: the index after the last epoch. By default one epoch; without limit
                where ``max_steps`` or ``max_time`` is given.
            initial_epoch: the index of the first epoch. From 0 the counters start anew.
            steps_per_epoch: at most so many batches in an epoch.
            validation_data: as ``data``; or a mapping of names to several sets.
            validation_freq: validate every so many epochs, or in the epochs (0-based) of a
                collection.
            validation_steps: at most so many batches of each validation set.
            validation_every_steps: validate after every so many steps instead.
            validate_on_stop: validate also in an epoch that was cut by a stop.
            max_steps: end when so many steps are done in all.
            max_time: stop at the first batch that ends after so many seconds.
            subscribers: objects to attach for this run only.
            resume: what an attached Checkpoint shall restore: ``"auto"`` for the newest there
                is, if any, or a path.

        Returns:
            The history of the run.

        Raises:
            TypeError, ValueError: an argument is wrong.
            RuntimeError: there is no ``train_step``, or the loop is running already.
        """
        plan = Plan(
            Feed(data),
            epochs,
            initial_epoch,
            steps_per_epoch,
            feeds(validation_data, "validation_data"),
            validation_freq,
            validation_steps,
            validation_every_steps,
            validate_on_stop,
            max_steps,
            max_time,
        )
        train = self._step("train", "fit")
        test = self._step("test", "validation_data") if plan.validation else None
        run = Fit(self, plan, train, test)
        stage = run.training.stage
        run.training.enter()
        try:
            for guest in subscribers:
                stage.at_leave(self.attach(guest).disconnect)
            run.run(resume)
        finally:
            stage.close()
        assert self.history is not None
        return self.history

    def evaluate(
        self, data: Data | Mapping[str, Data], *, steps: int | None = None
    ) -> dict[str, float]:
        """Test.

        Args:
            data: an iterable of batches, or a function that returns one; or a mapping of
                names to several sets.
            steps: at most so many batches.

        Returns:
            The means of the metrics, and what subscribers have added at ``test_end``.

        Raises:
            TypeError, ValueError: an argument is wrong.
            RuntimeError: there is no ``test_step``, or the loop runs in another thread.
        """
        whole_number(steps, "steps", least=1)
        step = self._step("test", "evaluate")
        found: dict[str, float] = {}
        for name, feed in feeds(data, "data").items():
            _, logs = run_test(self, step, feed, name=name, steps=steps)
            found |= {f"{name}_{key}" if name else key: value for key, value in logs.items()}
        return found

    def predict(self, data: Data, *, steps: int | None = None) -> list[Any]:
        """Return what ``predict_step`` makes of each batch.

        Args:
            data: an iterable of batches, or a function that returns one.
            steps: at most so many batches.

        Raises:
            TypeError, ValueError: an argument is wrong.
            RuntimeError: there is no ``predict_step``, or the loop runs in another thread.
        """
        whole_number(steps, "steps", least=1)
        step = self._step("predict", "predict")
        return run_predict(self, step, Feed(data), steps=steps)

    def _step(self, kind: str, use: str) -> Callable[[Any], Any]:
        step: Callable[[Any], Any] | None = getattr(self, f"{kind}_step")
        if step is None:
            raise RuntimeError(f"{use} needs a {kind}_step: Loop(..., {kind}_step=...)")
        return step

    # -- the loop that the user writes

    def epochs(
        self, epochs: int | None = None, *, initial_epoch: int = 0, resume: object = False
    ) -> Iterator[int]:
        """Yield the epochs of a run that you write yourself, inside of ``with Loop() as loop``.

        Args:
            epochs: the index after the last epoch; None to go on until stopped.
            initial_epoch: the index of the first.
            resume: as in ``fit``.

        Raises:
            TypeError, ValueError: an argument is wrong.
            RuntimeError: the loop is running already.
        """
        whole_number(epochs, "epochs")
        whole_number(initial_epoch, "initial_epoch", optional=False)
        training = Training(self, epochs=epochs, initial_epoch=initial_epoch)
        return self._by_hand.epochs(training, resume)

    def batches(
        self,
        data: Data,
        *,
        stage: str = "train",
        steps: int | None = None,
        name: str | None = None,
    ) -> Iterator[Any]:
        """Yield batches, to train on in an epoch, or to test or predict.

        Args:
            data: as in ``fit``.
            stage: ``train``, ``test`` or ``predict``. What is logged in a test pass within an
                epoch is in that epoch's logs as ``val_...``.
            steps: at most so many batches.
            name: of the test data: ``val_<name>_...``.

        Raises:
            TypeError, ValueError: an argument is wrong.
            RuntimeError: there is no epoch around batches to train on.
        """
        whole_number(steps, "steps", least=1)
        feed = Feed(data)
        if stage == "train":
            return self._by_hand.train(feed, steps)
        if stage == "test":
            return self._by_hand.test(feed, steps, name)
        if stage == "predict":
            return self._by_hand.predict(feed, steps)
        raise ValueError(f"stage must be 'train', 'test' or 'predict', not {stage!r}")

    def __enter__(self) -> Self:
        self._by_hand.managed = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._by_hand.managed = False
        if error is None:
            self._by_hand.settle()
        else:
            self._by_hand.fail(error)

    def log(self, *, reduce: str = "mean", **metrics: Any) -> None:
        """Put metrics into the logs of what is under way: a batch, an epoch, a pass, a run.

        What is logged in a batch is in the logs of its end, and reduced over the pass in the
        logs of the pass: a mean weighted by batch size, unless ``reduce`` says otherwise.
        ``batch_size=`` sets that weight.

        Args:
            reduce: ``mean``, ``sum``, ``min``, ``max`` or ``last``.
            metrics: numbers, also arrays of one element on any device.

        Raises:
            TypeError: a metric is not a number.
            ValueError: there is no such reduction, or the metric is reduced in another way.
            RuntimeError: nothing is under way.
        """
        if not self.spans:
            raise RuntimeError("there is nothing to log into: no stage of this loop is running")
        self.spans[-1].log(metrics, reduce)

    def send(self, point: str, /, **payload: Any) -> None:
        """Send a point, also one that you declared yourself on the loop's bus.

        Counters of the loop (``epoch``, ``batch``, ``step``, ``update``) that the point
        carries are filled in from ``loop.state`` unless given.

        Raises:
            UnknownPointError: there is no such point.
            TypeError: the payload is not the one declared.
        """
        emitter = self.emitter(point)
        for counter in COUNTERS.intersection(emitter.signal.payload or ()):
            payload.setdefault(counter, getattr(self.state, counter))
        emitter.send(**payload)

    # -- control

    def stop(self, reason: str = "", *, final: bool = True, interrupt: bool = False) -> None:
        """Ask the run to stop: no further batch starts; all ends are sent. From any thread.

        Requests add up; none takes another back. One made at rest holds for the next run.

        Args:
            reason: why, in words.
            final: the run has come to its end, for a resumed one too. Otherwise, as when
                time is up, a resumed run goes on.
            interrupt: it comes from outside of the run, whose outcome is then
                ``interrupted`` instead of ``stopped``; never final.
        """
        caller = sys._getframe(1)  # noqa: SLF001 -- who asks is part of the request
        name = f"{caller.f_globals.get('__name__', '?')}.{caller.f_code.co_qualname}"
        self.ask(StopRequest(reason, name, final and not interrupt, interrupt))

    def ask(self, request: StopRequest) -> None:
        """Take in a request to stop, and send ``stop_requested``."""
        self.state.ask(request)
        emitter = self.emitter("stop_requested")
        if emitter.live:
            emitter.send(request.reason, request.requester)

    def afterwards(self, action: Callable[[], object]) -> None:
        """Have something done once the point under way has reached all its subscribers.

        So a checkpoint holds what all of them have decided, whatever their order. An error
        that comes out of the point leaves it undone.

        Args:
            action: a function without arguments.

        Raises:
            RuntimeError: no training is under way.
        """
        if "train" not in self.state.stages:
            raise RuntimeError("afterwards is for subscribers of train_batch_end and epoch_end")
        self.state.actions.append(action)

    def stop_epoch(self) -> None:
        """Have the innermost pass, such as this epoch, end after the batch under way.

        Raises:
            RuntimeError: there is none.
        """
        self._pass("stop_epoch").cut = True
        self.state.attention = True

    def skip_batch(self) -> None:
        """Leave out the batch under way: its step, if asked at its begin, and its metrics.

        Its end is sent with ``skipped=True``.

        Raises:
            RuntimeError: no batch is under way.
        """
        span = self._pass("skip_batch")
        if not span.within or span.point == "end":
            raise RuntimeError("skip_batch: no batch is under way")
        span.skipping = True
        self.state.attention = True

    def _pass(self, asked: str) -> Pass:
        if not self.state.passes:
            raise RuntimeError(f"{asked}: no epoch or other pass over batches is under way")
        return self.state.passes[-1]  # type: ignore[return-value]

    # -- going on later

    def state_dict(self) -> dict[str, Any]:
        """Describe where the run is: all that it takes to go on exactly there.

        Raises:
            RuntimeError: nothing was run yet.
        """
        if self.position is None:
            raise RuntimeError("this loop has not run yet: there is no position to save")
        return self.position.state_dict(self.state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Have the run that is about to begin go on from a saved position.

        This is for what restores a checkpoint, called by ``fit(resume=...)``.

        Raises:
            RuntimeError: no run is about to begin.
            ValueError: it is of another version, or keys are missing or unknown.
        """
        if self.position is None or self.state.stage != "train" or self.stages[-1].begun:
            raise RuntimeError("a position is loaded by fit(resume=...), before its train_begin")
        self.position.load_state_dict(state, self.state)

    # -- for the stages

    def check_free(self, kind: str) -> None:
        """Check that a stage may begin.

        Raises:
            RuntimeError: it may not.
        """
        if self.thread is not None and self.thread != threading.get_ident():
            raise RuntimeError("this loop is running in another thread; make a second Loop there")
        if kind == "train" and self.stages:
            raise RuntimeError(
                f"this loop is in the middle of {self.state.stage}: it cannot train inside of"
                " itself; make a second Loop"
            )

    def record(self) -> None:
        """See to it that the history of the run is kept."""
        for name, owner in self._named_owners():
            if name == "History":
                self.history = owner  # type: ignore[assignment]
                return
        module, _, name = RECORDER.partition(":")
        self.history = getattr(import_module(module), name)()
        self.stages[0].at_leave(self.attach(self.history).disconnect)
