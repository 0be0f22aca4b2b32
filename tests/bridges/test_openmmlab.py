"""Hooks on our loop without OpenMMLab: both signatures, priorities, the runner and its refusals."""

from __future__ import annotations

from typing import Any

import pytest

from lifecycle import Loop
from lifecycle.bridges.openmmlab import use


def loop() -> Loop:
    return Loop(lambda x: {"loss": x}, lambda x: {"loss": x})


class Noted:
    def __init__(self) -> None:
        self.notes: list[Any] = []


def test_mmcv_s_signature_and_counters() -> None:
    """A method of the runner alone is called so; epoch, iter and inner_iter count as in mmcv."""

    class Old(Noted):
        def before_run(self, runner: Any) -> None:
            self.notes.append(("run", runner.max_epochs, runner.max_iters))

        def after_train_iter(self, runner: Any) -> None:
            self.notes.append((runner.epoch, runner.iter, runner.inner_iter, runner.outputs))

        def after_run(self, runner: Any) -> None:
            self.notes.append((runner.epoch, runner.iter))

    hook, made = Old(), loop()
    made.attach(hook)
    made.fit([1.0, 2.0], epochs=2)
    losses = [{"loss": 1.0}, {"loss": 2.0}]
    assert hook.notes == [
        ("run", 2, 4),
        (0, 0, 0, losses[0]),
        (0, 1, 1, losses[1]),
        (1, 2, 0, losses[0]),
        (1, 3, 1, losses[1]),
        (2, 4),
    ]


def test_mmcv_s_generic_methods_hear_training_and_validation() -> None:
    """before_epoch and after_iter stand for the stages of train and val where these are missing."""

    class Generic(Noted):
        def before_epoch(self, runner: Any) -> None:
            self.notes.append(runner.mode)

        def after_iter(self, runner: Any) -> None:
            self.notes.append(runner.mode + " iter")

    hook, made = Generic(), loop()
    made.attach(hook)
    made.fit([1.0], validation_data=[1.0])
    assert hook.notes == ["train", "train iter", "val", "val iter"]


def test_the_log_buffer_averages_what_the_steps_return() -> None:
    """log_buffer.average and output work as mmcv's loggers use them, and clear with the epoch."""
    seen: list[Any] = []

    class Logger:
        priority = "VERY_LOW"

        def after_train_iter(self, runner: Any) -> None:
            runner.log_buffer.average(2)
            seen.append(dict(runner.log_buffer.output))

    made = loop()
    made.attach(Logger())
    made.fit([1.0, 2.0, 4.0], epochs=2)
    assert [each["loss"] for each in seen] == [1.0, 1.5, 3.0] * 2


def test_hooks_run_at_their_own_priorities_among_subscribers() -> None:
    """A hook's priority, in either case or as a number, is ours; an argument overrides it."""
    order: list[str] = []

    def hook(name: str, rank: Any) -> Any:
        note = lambda self, runner: order.append(name)  # noqa: E731
        return type(name, (), {"priority": rank, "after_train_iter": note})()

    made = loop()
    made.connect("train_batch_end", lambda: order.append("ours"))
    made.attach(hook("late", "Very_Low"), hook("early", 20))
    use(made, hook("first", "LOWEST"), priority="HIGHEST")
    made.fit([1.0])
    assert order == ["first", "early", "ours", "late"]


def test_the_stop_flag_and_the_outer_stages() -> None:
    """train_loop.stop_training is a request with the hook's name; after_run comes last."""

    class Stopper(Noted):
        priority = "LOWEST"

        def after_train_iter(
            self, runner: Any, batch_idx: int, data_batch: Any, outputs: Any
        ) -> None:
            self.notes.append((batch_idx, data_batch, outputs["loss"]))
            runner.train_loop.stop_training = True

        def after_train(self, runner: Any) -> None:
            self.notes.append("after_train")

        def after_run(self, runner: Any) -> None:
            self.notes.append("after_run")

    hook, made = Stopper(), loop()
    made.attach(hook)
    made.fit([1.0, 2.0], epochs=3)
    assert hook.notes == [(0, 1.0, 1.0), "after_train", "after_run"]
    assert made.state.reasons == ("Stopper set train_loop.stop_training",)


def test_a_failed_run_calls_nothing_more() -> None:
    """As in mmengine, hooks hear of no end of a run that has failed."""

    class Hook(Noted):
        def after_train_iter(self, runner: Any) -> None:
            raise ValueError("no")

        def after_run(self, runner: Any) -> None:
            self.notes.append("after_run")

    hook, made = Hook(), loop()
    made.attach(hook)
    with pytest.raises(ValueError, match="no"):
        made.fit([1.0])
    assert hook.notes == []


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("ema_model", r"Asker asks for runner.ema_model, which is not to be had on this loop"),
        ("model", r"Asker asks for runner.model, but the loop has none"),
        ("work_dir", r"Asker asks for runner.work_dir: say where"),
        (
            "max_iters",
            r"Asker asks for runner.max_iters, but how long the run will be is not known",
        ),
    ],
)
def test_what_the_runner_lacks_is_refused_by_name(asked: str, message: str) -> None:
    """The AttributeError names the hook, what it asked for and what to use."""

    class Asker:
        def before_train_iter(self, runner: Any) -> None:
            getattr(runner, asked)

    made = loop()
    made.attach(Asker())
    with pytest.raises(AttributeError, match=message):
        made.fit(iter([1.0]))


def test_a_hook_detaches() -> None:
    """Detached, it hears nothing more, the outer stages included."""

    class Hook(Noted):
        def before_run(self, runner: Any) -> None:
            self.notes.append("before_run")

    hook, made = Hook(), loop()
    made.attach(hook)
    made.detach(hook)
    made.fit([1.0])
    assert hook.notes == []


def test_what_is_no_hook_is_refused() -> None:
    """A configuration, an unknown argument and a method that asks too much are told at once."""

    class Greedy:
        def after_train_iter(self, runner: Any, gradients: Any) -> None: ...

    with pytest.raises(TypeError, match="build it"):
        use(loop(), [{"type": "EMAHook"}])
    with pytest.raises(TypeError, match="no argument 'workdir'"):
        use(loop(), [], workdir="x")
    with pytest.raises(TypeError, match=r"requires 'gradients', which after_train_iter does not"):
        loop().attach(Greedy())
