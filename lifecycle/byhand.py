"""The loop that the user writes: ``for epoch in loop.epochs(5): for batch in loop.batches(data)``.

Closing a generator cannot tell a ``break`` from an error, and comes before the ``with``
block hears of it. So inside of ``with``, nothing is sent on closing: what was left open is
closed by the next call of ``epochs`` or ``batches``, or by the end of the block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lifecycle.passes import fill, length, limited, predict_stage, test_stage
from lifecycle.stage import report

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lifecycle.batches import Pass
    from lifecycle.data import Feed
    from lifecycle.loop import Loop
    from lifecycle.stage import Stage
    from lifecycle.training import Training

__all__ = ["ByHand"]


class ByHand:
    """What is open of a hand-written loop."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.managed = False
        """Whether a ``with`` block will end what is left open."""
        self.training: Training | None = None
        self.whole = True
        """Whether the batches of the epoch came to their end."""
        self.alone: tuple[Stage, Pass, str | None] | None = None
        """The test or predict pass that is open."""

    # -- the generators

    def epochs(self, training: Training, resume: object) -> Iterator[int]:
        """Yield the epochs of a run."""
        self.settle()
        training.stage.by_hand = True
        training.enter()
        self.training = training
        try:
            training.begin(resume)
            index = training.initial_epoch
            while training.epochs is None or index < training.epochs:
                if training.stage.stopped and not training.position.reopens:
                    break
                training.open_epoch(index)
                self.whole = True
                yield index
                self._check_current(training)
                self._close_epoch()
                index += 1
        except GeneratorExit:
            training.stage.left = True
            if self.training is training and not self.managed:
                self._close_quietly()
            return
        except BaseException as error:
            if self.training is training and not self.managed:
                self._end(error)
            raise
        self._end(None)

    def _check_current(self, training: Training) -> None:
        if self.training is not training:
            raise RuntimeError(
                "this run is over: another one was begun on its loop before all of its epochs were"
                " drawn; two runs at once take two loops"
            )

    def train(self, feed: Feed, steps: int | None) -> Iterator[Any]:
        """Yield the batches of the epoch that is open."""
        training = self.training
        epoch = training.epoch if training is not None else None
        if training is None or epoch is None:
            raise RuntimeError(
                "batches to train on belong to an epoch: `for epoch in loop.epochs(n): for batch"
                " in loop.batches(data): ...`"
            )

        def start() -> Iterable[Any]:
            self._settle_pass()
            epoch.settle()
            training.position.feed = feed
            self.loop.state.steps_per_epoch = training.steps_per_epoch = length(feed, steps)
            self.whole = False
            reopens = training.position.reopens
            if epoch.halted() and not reopens:
                return ()
            batches = training.position.draw(feed, self.loop.state.epoch)
            if epoch.halted():
                return ()
            done_before = epoch.done if reopens else 0
            return limited(batches, None if steps is None else steps - done_before)

        def over(error: BaseException | None) -> None:
            self.whole = error is None and (
                epoch.done == training.steps_per_epoch or not (epoch.cut or training.stage.stopped)
            )
            if not (error is None or isinstance(error, GeneratorExit) or self.managed):
                self._end(error)

        return epoch.walk(start, over)

    def test(self, feed: Feed, steps: int | None, name: str | None) -> Iterator[Any]:
        """Yield the batches of a test pass."""
        epoch = self._around()
        stage, made = test_stage(self.loop, name, epoch)
        return self._pass(stage, made, feed, steps, name, (name, epoch, length(feed, steps)))

    def predict(self, feed: Feed, steps: int | None) -> Iterator[Any]:
        """Yield the batches of a predict pass."""
        self._around()
        stage, made = predict_stage(self.loop)
        return self._pass(stage, made, feed, steps, None, (length(feed, steps),))

    def _around(self) -> int | None:
        """Close the pass that was open before; return the epoch around the new one."""
        self._settle_pass()
        training = self.training
        if training is None or training.epoch is None:
            return None
        training.epoch.settle()
        training.fill(training.epoch)
        return self.loop.state.epoch

    def _pass(
        self,
        stage: Stage,
        made: Pass,
        feed: Feed,
        steps: int | None,
        name: str | None,
        payload: tuple[Any, ...],
    ) -> Iterator[Any]:
        stage.by_hand = True
        self.alone = (stage, made, name)

        def start() -> Iterable[Any]:
            stage.begin(*payload)
            if made.halted():
                return ()
            return limited(feed.open(self.loop.state.epoch), steps)

        def over(error: BaseException | None) -> None:
            if error is None:
                self._settle_or_end()
            elif isinstance(error, GeneratorExit):
                stage.left = True
                if not self.managed and self.training is None:  # nothing around will do it
                    self._close_quietly()
            elif not self.managed:
                self._end(error)

        return made.walk(start, over)

    # -- closing

    def settle(self) -> None:
        """Close all that an earlier ``for`` has left open."""
        self._settle_pass()
        if self.training is not None:
            self._end(None)

    def fail(self, error: BaseException) -> None:
        """End what is open because of an error."""
        self._end(error)

    def _settle_pass(self) -> None:
        if self.alone is None:
            return
        stage, made, name = self.alone
        made.settle()
        self.alone = None
        with stage:
            fill(made)
        training = self.training
        if stage.kind == "test" and training is not None and training.epoch is not None:
            if stage.outcome in ("stopped", "interrupted"):
                self.whole = False  # half a validation would pass for a whole one
                return
            training.epoch.logs.take(made.logs, "val_" if name is None else f"val_{name}_")

    def _settle_or_end(self) -> None:
        try:
            self._settle_pass()
        except BaseException as error:
            if not self.managed:
                self._end(error)
            raise

    def _close_epoch(self) -> None:
        self._settle_pass()
        training = self.training
        assert training is not None
        epoch = training.epoch
        if epoch is None:
            return
        epoch.settle()
        stopped = training.stage.stopped
        training.close_epoch(
            partial=not self.whole, resumable=not self.whole and stopped and not epoch.cut
        )

    def _end(self, error: BaseException | None) -> None:
        """End the stages that are open, the inner one first."""
        training = self.training
        try:
            if error is None:
                if training is not None:
                    self._close_epoch()
                else:
                    self._settle_pass()
        except BaseException as failure:
            self._end(failure)
            raise
        alone, self.alone, self.training = self.alone, None, None
        stages = []
        if alone is not None:
            alone[1].walks += 1
            stages.append(alone[0])
        if training is not None:
            if training.epoch is not None:
                training.epoch.walks += 1
            stages.append(training.stage)
        for stage in stages:
            stage.__exit__(None if error is None else type(error), error, None)

    def _close_quietly(self) -> None:
        """End at the close of a generator, out of which no error can come."""
        try:
            self._end(None)
        except BaseException as error:  # noqa: BLE001 -- Python would only print it
            report(error, "at the end of a loop that was left")
