"""Loop: runs training, tests and predictions, and sends the points of their life."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self

from lifecycle.byhand import ByHand
from lifecycle.control import Control
from lifecycle.data import Feed, feeds
from lifecycle.fit import Fit, Plan, whole_number
from lifecycle.passes import run_predict, run_test
from lifecycle.training import Training

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from types import TracebackType

    from eventbus import Bus
    from lifecycle.data import Data
    from lifecycle.subscribers import History

__all__ = ["Loop"]


class Loop(Control):
    """Trains, tests and predicts, and sends the points of a run's life.

    The steps are given as functions, or are methods of a subclass.

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

    train_step: Callable[[Any], Any] | None = None
    test_step: Callable[[Any], Any] | None = None
    predict_step: Callable[[Any], Any] | None = None

    def __init__(
        self,
        train_step: Callable[[Any], Any] | None = None,
        test_step: Callable[[Any], Any] | None = None,
        predict_step: Callable[[Any], Any] | None = None,
        *,
        objects: Mapping[str, Any] | None = None,
        bus: Bus | None = None,
    ) -> None:
        super().__init__(bus)
        steps = {"train_step": train_step, "test_step": test_step, "predict_step": predict_step}
        for name, step in steps.items():
            if step is None:  # a subclass may have it as a method
                continue
            if not callable(step):
                raise TypeError(f"{name} must be a function of the batch, not {step!r}")
            setattr(self, name, step)
        self.objects.update(objects or {})
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
        validation_every_steps: int | Collection[int] | None = None,
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
            validation_every_steps: validate after every so many steps instead, or after the
                counts of steps in a collection: ``range(1000, 9001, 500)``.
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
        ).checked()
        train = self._step("train", "fit")
        test = self._step("test", "validation_data") if plan.validation else None
        if not isinstance(subscribers, Iterable):
            raise TypeError(f"subscribers must be several objects, not {subscribers!r}")
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
