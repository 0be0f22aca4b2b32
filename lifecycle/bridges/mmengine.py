"""mmengine's Runner as the sender of our points.

    runner.register_hook(MMEngineBridge())        # or custom_hooks=[...]

The hook listens to mmengine's stages. Its loops look at their flag to stop late or never
within an epoch, so the hook also stands between a loop and its data.
"""

from __future__ import annotations

import functools
from bisect import bisect
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from lifecycle.bridges.facade import Facade

try:
    from mmengine.hooks import Hook
except ImportError as error:
    raise ImportError('MMEngineBridge needs mmengine: pip install "epochbus[mmengine]"') from error

if TYPE_CHECKING:
    from eventbus import Bus

__all__ = ["MMEngineBridge", "MMEngineLoop"]


class MMEngineLoop(Facade):
    """The loop that subscribers see while mmengine trains; ``bridge.loop``."""

    framework: ClassVar[str] = "mmengine"
    runs_by: ClassVar[str] = "runner.train, runner.val or runner.test"

    runner: Any = None
    """mmengine's Runner."""

    data: BrokenOff | None = None
    """The data of the loop that runs."""

    lr: float | None = None
    """The learning rate of the step under way."""

    @property
    def model(self) -> Any:
        """The model."""
        return self.runner.model

    @property
    def optimizer(self) -> Any:
        """The optimizer wrapper."""
        return self.runner.optim_wrapper

    def rate(self) -> float | None:
        """Return the learning rate of the step that was made last."""
        return self.lr

    def halt(self) -> None:
        """Have the loop stop: no further batch, and no validation of the broken epoch."""
        if "train" in self.state.stages:
            loop = self.runner.train_loop
            loop.stop_training = True
            if self.training is not None and self.training.epoch is not None:
                loop.val_begin = float("inf")
        if self.data is not None:
            self.data.broken_off = True

    def halt_epoch(self) -> None:
        """Have the pass end, and the loop go on after it."""
        if self.data is not None:
            self.data.broken_off = True


class BrokenOff:
    """The data of a mmengine loop, whose batches end when the subscribers want it."""

    def __init__(self, data: Any) -> None:
        self.data = data
        self.broken_off = False

    def __len__(self) -> int:
        return len(self.data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.data, name)

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches until the epoch is to be broken off."""
        for batch in self.data:
            if self.broken_off:
                return
            yield batch
            if self.broken_off:
                return


class MMEngineBridge(Hook):  # type: ignore[misc]  # mmengine is not typed
    """A hook that makes mmengine's Runner the sender of our points.

    All our subscribers run in the hook's place among the runner's hooks, in the order of
    their own priorities. By default that is ``LOW`` and, as it is registered later, after
    ``ParamSchedulerHook``: the state they see is the one the next step begins with.

    An `EpochBasedTrainLoop` sends its epochs. An `IterBasedTrainLoop` is one epoch of all
    steps, with its validations inside.

    Args:
        bus: where the points are sent; the default bus unless given.
        objects: what subscribers shall reach in ``loop.objects``, beside ``model``,
            ``optimizer`` and, where there are some, ``schedulers``.
        priority: the hook's place, as `Runner.register_hook` takes it.
    """

    priority: str | int = "LOW"

    def __init__(
        self,
        bus: Bus | None = None,
        *,
        objects: Mapping[str, Any] | None = None,
        priority: str | int | None = None,
    ) -> None:
        self.loop = MMEngineLoop(bus, objects)
        self._own_objects = dict(objects or {})
        self._began: int | None = None
        """The loop's own ``val_begin``."""
        self._cut_short = False
        """Whether an iter-based loop was ended by ``stop_epoch``."""
        self._outer: BrokenOff | None = None
        self._validates = False
        """Whether ``epoch_end`` waits for a validation."""
        if priority is not None:
            self.priority = priority

    # -- a run

    def before_run(self, runner: Any) -> None:
        """Take the runner, and watch its loops for errors, which mmengine tells no hook."""
        self.loop.runner = runner
        self.loop.objects = {"model": _unwrapped(runner.model), **self._own_objects}
        for name, kind in (("train", "train"), ("val", "test"), ("test", "test")):
            each = getattr(runner, f"_{name}_loop", None)
            if hasattr(each, "run"):  # else it is only the configuration of one
                _watch(each, functools.partial(self._failed, kind=kind))

    def _failed(self, error: BaseException, kind: str) -> None:
        self.loop.fails(error, kind)
        self._let_go()

    def before_train(self, runner: Any) -> None:
        """Send ``train_begin``."""
        loop, train = self.loop, runner.train_loop
        loop.objects.setdefault("optimizer", runner.optim_wrapper)
        if runner.param_schedulers:
            loop.objects.setdefault("schedulers", runner.param_schedulers)
        loop.data = train.dataloader = BrokenOff(train.dataloader)
        self._began, self._cut_short = train.val_begin, False
        by_epoch = _by_epoch(train)
        loop.train_begins(
            train.max_epochs,
            len(train.dataloader) if by_epoch else train.max_iters,
            initial_epoch=train.epoch,
            steps_done=train.iter,
            max_steps=None if by_epoch else train.max_iters,
        )

    def after_train(self, runner: Any) -> None:
        """Send ``train_end``."""
        train = runner.train_loop
        if train.stop_training and not self._cut_short:
            self.loop.stopped_by("train_loop.stop_training")
        self._let_go()
        self.loop.train_ends()

    def _let_go(self) -> None:
        """Give the loops back what was theirs."""
        runner = self.loop.runner
        for each in (runner._train_loop, runner._val_loop, runner._test_loop):  # noqa: SLF001 -- built ones
            if isinstance(getattr(each, "dataloader", None), BrokenOff):
                each.dataloader = each.dataloader.data
        if self._began is not None:
            runner.train_loop.val_begin, self._began = self._began, None
        self.loop.data = None

    # -- epochs

    def before_train_epoch(self, runner: Any) -> None:
        """Send ``epoch_begin``."""
        loop = self.loop
        assert loop.data is not None
        loop.data.broken_off = loop.state.stopping
        done = 0 if _by_epoch(runner.train_loop) else runner.iter
        if loop.state.stopping:  # an iter-based loop begins its one epoch even so
            return
        loop.epoch_begins(runner.epoch)
        loop.lr = _learning_rate(runner.optim_wrapper)
        if done and loop.training is not None and loop.training.epoch is not None:
            loop.state.steps_before -= done  # an iter-based loop goes on within its one epoch
            loop.training.epoch.done = done

    def after_train_epoch(self, runner: Any) -> None:
        """Send ``epoch_end``, unless the epoch's validation is to come."""
        loop, train = self.loop, runner.train_loop
        if loop.training is None or loop.training.epoch is None:
            return
        loop.epoch_over()
        self._validates = _by_epoch(train) and _validates(runner, train)
        if not self._validates:
            self._epoch_ends()

    def _epoch_ends(self) -> None:
        self._validates = False
        training = self.loop.training
        if training is not None and training.epoch is not None:
            if self.loop.lr is not None:
                training.epoch.logs["lr"] = self.loop.lr
            self.loop.epoch_ends()

    # -- batches

    def before_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
        """Send ``train_batch_begin``."""
        self.loop.lr = _learning_rate(runner.optim_wrapper)
        self.loop.batch_begins(batch_idx, data_batch)

    def after_train_iter(
        self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None
    ) -> None:
        """Send ``train_batch_end``."""
        self.loop.state.updates_done = _updates(runner, self.loop.state.updates_done)
        self._batch_ends(batch_idx, data_batch, outputs, trains=True)
        if self.loop.state.stopping:  # the iter-based loop looks at nothing else
            self.loop.halt()
        elif self.loop.state.passes[-1].cut and not _by_epoch(runner.train_loop):  # type: ignore[attr-defined]
            runner.train_loop.stop_training = self._cut_short = True

    def _batch_ends(self, batch: int, data: Any, outputs: Any, *, trains: bool) -> None:
        made: Any = self.loop.state.passes[-1]
        metrics = outputs if isinstance(outputs, Mapping) and trains else None
        if metrics is not None:
            made.take(metrics, data)
        self.loop.batch_ends(batch, data, metrics, steps=trains)

    # -- validation and tests

    def before_val(self, runner: Any) -> None:
        """Send ``test_begin``."""
        self._test_begins(runner.val_loop)

    def before_test(self, runner: Any) -> None:
        """Send ``test_begin``."""
        self._test_begins(runner.test_loop)

    def _test_begins(self, loop: Any) -> None:
        loop.dataloader = BrokenOff(loop.dataloader)
        self._outer, self.loop.data = self.loop.data, loop.dataloader
        self.loop.test_begins(len(loop.dataloader))

    def before_val_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:  # noqa: ARG002
        """Send ``test_batch_begin``."""
        self.loop.batch_begins(batch_idx, data_batch)

    before_test_iter = before_val_iter

    def after_val_iter(
        self,
        runner: Any,  # noqa: ARG002
        batch_idx: int,
        data_batch: Any = None,
        outputs: Any = None,
    ) -> None:
        """Send ``test_batch_end``."""
        self.loop.batch_ends(batch_idx, data_batch, outputs)

    after_test_iter = after_val_iter

    def after_val_epoch(self, runner: Any, metrics: Mapping[str, Any] | None = None) -> None:
        """Send ``test_end``, and the epoch's end that has waited for it."""
        self._test_ends(runner.val_loop, metrics)
        if self._validates:
            self._epoch_ends()

    def after_test_epoch(self, runner: Any, metrics: Mapping[str, Any] | None = None) -> None:
        """Send ``test_end``."""
        self._test_ends(runner.test_loop, metrics)

    def _test_ends(self, loop: Any, metrics: Mapping[str, Any] | None) -> None:
        loop.dataloader = loop.dataloader.data
        self.loop.data = self._outer
        self.loop.state.passes[-1].logs.update(metrics or {})  # type: ignore[attr-defined]
        self.loop.pass_ends()

    # -- checkpoints of mmengine's own

    def after_load_checkpoint(self, runner: Any, checkpoint: Mapping[str, Any]) -> None:
        """Send ``checkpoint_loaded``."""
        meta = checkpoint.get("meta", {})
        path = str(getattr(runner, "_load_from", None) or "")
        self.loop.send(
            "checkpoint_loaded", path=path, epoch=meta.get("epoch", 0), step=meta.get("iter", 0)
        )


def _by_epoch(loop: Any) -> bool:
    """Whether a train loop goes through its data epoch by epoch."""
    return not hasattr(loop, "dataloader_iterator")


def _validates(runner: Any, loop: Any) -> bool:
    """Whether mmengine will validate after the epoch that has just run."""
    done = loop.epoch + 1
    if runner.val_loop is None or done < loop.val_begin:
        return False
    interval = loop.dynamic_intervals[bisect(loop.dynamic_milestones, done + 1) - 1]
    return bool(done % interval == 0 or done == loop.max_epochs)


def _unwrapped(model: Any) -> Any:
    """Return the model inside of mmengine's wrapper for several processes."""
    from mmengine.model import is_model_wrapper  # noqa: PLC0415 -- slow to import

    return model.module if is_model_wrapper(model) else model


def _learning_rate(wrapper: Any) -> float | None:
    rates = wrapper.get_lr()
    first = next(iter(rates.values()), None) if isinstance(rates, Mapping) else rates
    return float(first[0]) if first else None


def _updates(runner: Any, before: int) -> int:
    """Count the optimizer's steps; under accumulation there are fewer than batches."""
    wrapper = runner.optim_wrapper
    count = getattr(wrapper, "_inner_count", None)
    every = getattr(wrapper, "_accumulative_counts", 1)
    if count is None:
        return before + 1
    last = count == getattr(wrapper, "_max_counts", -1)
    return before + bool(count % every == 0 or last)


def _watch(each: Any, failed: Callable[[BaseException], None]) -> None:
    """Have it told where the next run of a mmengine loop raises."""
    run: Callable[[], Any] = each.run

    @functools.wraps(run)
    def watched() -> Any:
        del each.run  # the instance's: this
        try:
            return run()
        except BaseException as error:
            failed(error)
            raise

    each.run = watched
