"""Hooks of OpenMMLab, mmengine's and mmcv's, on our loop, called as their runner calls them.

    use(loop, [EMAHook(), CheckpointHook(interval=1)], work_dir="work_dirs/run")

Neither framework is imported for it. Each hook runs at its own priority among our
subscribers. Where one point of ours is two stages of theirs, the outer stage of all hooks
comes first (or last), so that the stages keep their order whatever the priorities.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from eventbus import PRIORITIES, SubscriptionGroup
from lifecycle.bridges.openmmlab_runner import GIVEN, RunnerFacade
from lifecycle.foreign import STAGES

if TYPE_CHECKING:
    from lifecycle.logs import Logs
    from lifecycle.loop import Loop

__all__ = ["Hook", "connect", "use"]

POINTS: Final[Mapping[str, tuple[str, ...]]] = {
    "train_begin": ("before_train",),
    "epoch_begin": ("before_train_epoch",),
    "train_batch_begin": ("before_train_iter",),
    "train_batch_end": ("after_train_iter",),
    "epoch_end": ("after_train_epoch",),
    "train_end": ("after_train",),
    "test_begin": ("before_val_epoch", "before_test_epoch"),
    "test_batch_begin": ("before_val_iter", "before_test_iter"),
    "test_batch_end": ("after_val_iter", "after_test_iter"),
    "test_end": ("after_val_epoch", "after_test_epoch"),
}
"""The stages that each hook hears at its own priority."""

GENERIC: Final = {
    "before_train_epoch": "before_epoch",
    "before_val_epoch": "before_epoch",
    "after_train_epoch": "after_epoch",
    "after_val_epoch": "after_epoch",
    "before_train_iter": "before_iter",
    "before_val_iter": "before_iter",
    "after_train_iter": "after_iter",
    "after_val_iter": "after_iter",
}
"""mmcv's names for a stage of training and of validation alike."""

CARRIED: Final = ("batch_idx", "data_batch", "outputs", "metrics", "checkpoint")
"""What a stage may hand to a hook beside the runner, by mmengine's names."""


def use(
    loop: Loop, hooks: Any, *, priority: str | int | None = None, **given: Any
) -> SubscriptionGroup:
    """Run hooks on a loop.

    Args:
        loop: whose points they hear.
        hooks: one, or several.
        priority: for all of them; their own by default.
        given: what they shall find on their runner: ``work_dir``, ``param_schedulers``,
            ``val_dataloader`` and others (see `RunnerFacade`); ``model`` and ``optimizer``
            are the loop's objects by default.

    Returns:
        One handle for all.

    Raises:
        TypeError: there is no such thing on the runner, or a hook is none.
    """
    unknown = given.keys() - GIVEN
    if unknown:
        raise TypeError(
            f"use() has no argument {min(unknown)!r}; a runner has {', '.join(sorted(GIVEN))}"
        )
    conductor(loop).runner.given |= given
    options = {} if priority is None else {"priority": priority}
    several = hooks if isinstance(hooks, Iterable) else [hooks]
    return SubscriptionGroup(connect(loop, hook, options) for hook in several)


def connect(loop: Loop, hook: Any, options: Mapping[str, Any]) -> SubscriptionGroup:
    """Connect a hook to a loop; what ``loop.attach(hook)`` does.

    Args:
        loop: whose points it hears.
        hook: an object with methods such as ``before_train_iter``.
        options: those of its subscriptions.

    Raises:
        TypeError: it has no such method, or one asks for what no stage carries.
    """
    if isinstance(hook, Mapping):
        raise TypeError("a hook is an object, not its configuration: build it, as in HOOKS.build")
    leader = conductor(loop)
    made = Hook(hook, leader.runner)
    rest = {"name": type(hook).__name__, "sender": loop, "priority": made.priority, **options}
    group = SubscriptionGroup()
    for point, stages in POINTS.items():
        # train_begin in any case: as long as that is connected, the hook is
        if point == "train_begin" or any(stage in made.calls for stage in stages):
            group.add(loop.bus.connect(point, getattr(made, point), **rest))
    leader.add(made, group, rest["priority"])
    return group


class Hook:
    """One hook as a subscriber.

    Args:
        hook: the hook.
        runner: what it gets as its runner.

    Raises:
        TypeError: it has no method for a stage, or one asks for what no stage carries.
    """

    def __init__(self, hook: Any, runner: RunnerFacade) -> None:
        self.hook, self.runner = hook, runner
        self.calls = {stage: _call(method, stage) for stage, method in _methods(hook).items()}
        if not self.calls:
            raise TypeError(f"{hook!r} has no method for a stage, such as before_train_iter")
        own = getattr(hook, "priority", None)
        self.priority = own.upper() if isinstance(own, str) else own
        self.takes_runner_alone = any(call.alone for call in self.calls.values())

    def __repr__(self) -> str:
        return f"<Hook {type(self.hook).__name__}>"

    def call(self, stage: str, **values: Any) -> None:
        """Call the hook's method for a stage, if it has one."""
        call = self.calls.get(stage)
        if call is not None:
            self.runner.calling = type(self.hook).__name__
            call(self.runner, values)

    # -- the points

    def train_begin(self) -> None:
        """Call ``before_train``."""
        self.call("before_train")

    def epoch_begin(self) -> None:
        """Call ``before_train_epoch``."""
        self.call("before_train_epoch")

    def train_batch_begin(self, batch: int, data: Any) -> None:
        """Call ``before_train_iter``."""
        self.call("before_train_iter", batch_idx=batch, data_batch=data)

    def train_batch_end(self, batch: int, data: Any, outputs: Any) -> None:
        """Call ``after_train_iter``."""
        self.runner.outputs = outputs
        self.call("after_train_iter", batch_idx=batch, data_batch=data, outputs=outputs)

    def epoch_end(self, loop: Loop) -> None:
        """Call ``after_train_epoch``, unless that was due before the validation."""
        if not conductor(loop).epoch_over:
            self.call("after_train_epoch")

    def train_end(self, error: BaseException | None) -> None:
        """Call ``after_train``, unless the run has failed: then mmengine calls nothing."""
        if error is None:
            self.call("after_train")

    def test_begin(self) -> None:
        """Call ``before_val_epoch``, or ``before_test_epoch`` outside of training."""
        self.call(f"before_{self.runner.mode}_epoch")

    def test_batch_begin(self, batch: int, data: Any) -> None:
        """Call ``before_val_iter`` or ``before_test_iter``."""
        self.call(f"before_{self.runner.mode}_iter", batch_idx=batch, data_batch=data)

    def test_batch_end(self, batch: int, data: Any, outputs: Any) -> None:
        """Call ``after_val_iter`` or ``after_test_iter``."""
        self.runner.outputs = outputs
        self.call(
            f"after_{self.runner.mode}_iter", batch_idx=batch, data_batch=data, outputs=outputs
        )

    def test_end(self, logs: Logs, error: BaseException | None) -> None:
        """Call ``after_val_epoch`` or ``after_test_epoch``, unless the pass has failed."""
        if error is None:
            self.call(f"after_{self.runner.mode}_epoch", metrics=logs.plain())


class _Call:
    """How one method of a hook is called."""

    def __init__(self, method: Callable[..., Any], names: tuple[str, ...], alone: bool) -> None:
        self.method, self.names, self.alone = method, names, alone

    def __call__(self, runner: RunnerFacade, values: Mapping[str, Any]) -> None:
        self.method(runner, **{name: values[name] for name in self.names if name in values})


def _call(method: Callable[..., Any], stage: str) -> _Call:
    _, *rest = inspect.signature(method).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in rest):
        return _Call(method, CARRIED, alone=False)
    names = tuple(p.name for p in rest if p.name in CARRIED)
    for parameter in rest:
        if parameter.name not in CARRIED and parameter.default is parameter.empty:
            raise TypeError(
                f"{method.__qualname__} requires {parameter.name!r}, which {stage} does not carry;"
                f" stages carry runner, {', '.join(CARRIED)}"
            )
    return _Call(method, names, alone=stage.endswith("_iter") and not names)


def _methods(hook: Any) -> dict[str, Callable[..., Any]]:
    """Return the methods of a hook that do something, by stage."""
    listed = getattr(hook, "get_triggered_stages", None)
    stages = set(listed()) if callable(listed) else set(STAGES)
    found = {
        stage: getattr(hook, stage) for stage in STAGES if stage in stages and hasattr(hook, stage)
    }
    if not callable(listed):  # no base class of OpenMMLab's, which would call the generic ones
        for stage, generic in GENERIC.items():
            if stage not in found and hasattr(hook, generic):
                found[stage] = getattr(hook, generic)
    for generic in set(GENERIC.values()):
        found.pop(generic, None)
    return found


class Member(NamedTuple):
    """A hook in the order of all hooks of a loop."""

    priority: int
    hook: Hook
    group: SubscriptionGroup


class Conductor:
    """Has all hooks of a loop hear the outer stages, before or after those of their own."""

    def __init__(self, loop: Loop) -> None:
        self.runner = RunnerFacade(weakref.proxy(loop))
        self.members: list[Member] = []
        self.epoch_over = False
        """Whether the hooks have heard ``after_train_epoch`` of this epoch."""
        self._bus, self._loop = loop.bus, weakref.ref(loop)
        self._group = SubscriptionGroup()

    def add(self, hook: Hook, group: SubscriptionGroup, priority: str | int | None) -> None:
        """Take in a hook, and be first and last again at each point."""
        place = priority if isinstance(priority, int) else PRIORITIES[priority or "NORMAL"]
        self.members = sorted([*self._members(), Member(place, hook, group)], key=itemgetter(0))
        self._group.disconnect()
        self._group = group = SubscriptionGroup()
        first, last = self._first, self._last
        if any(member.hook.takes_runner_alone for member in self.members):
            first = {**first, "train_batch_end": self.log}
        for edge, receivers in (("HIGHEST", first), ("LOWEST", last)):
            for point, receiver in receivers.items():
                group.add(
                    self._bus.connect(
                        point, receiver, sender=self._loop(), priority=edge, name="OpenMMLab"
                    )
                )

    @property
    def _first(self) -> dict[str, Callable[..., Any]]:
        return {
            "train_begin": self.run_begins,
            "epoch_begin": self.epoch_begins,
            "test_begin": self.test_begins,
            "checkpoint_loaded": self.loaded,
        }

    @property
    def _last(self) -> dict[str, Callable[..., Any]]:
        return {
            "epoch_end": self.epoch_ends,
            "train_end": self.run_ends,
            "test_end": self.test_ends,
        }

    def _members(self) -> list[Member]:
        """Return those that are connected still."""
        self.members = [member for member in self.members if member.group.active]
        self.runner.hooks = [member.hook.hook for member in self.members]
        return self.members

    def _call(self, stage: str, **values: Any) -> None:
        for member in self._members():
            member.hook.call(stage, **values)

    # -- the points

    def run_begins(self, loop: Loop) -> None:
        """Call ``before_run``."""
        self.runner.epoch, self.runner.mode = loop.state.initial_epoch, "train"
        self.epoch_over = False
        self._call("before_run")

    def epoch_begins(self, epoch: int) -> None:
        """Count."""
        self.runner.epoch, self.runner.mode, self.epoch_over = epoch, "train", False

    def log(self, logs: Logs, outputs: Any) -> None:
        """Put a batch's metrics where mmcv's hooks look for them."""
        if isinstance(outputs, Mapping):
            self.runner.log_buffer.update({key: logs.raw(key) for key in logs})

    def test_begins(self, loop: Loop, epoch: int | None, steps: int | None) -> None:
        """Call ``after_train_epoch`` where the epoch's batches are over, then ``before_val``."""
        inside = epoch is not None
        if inside and getattr(loop.state.train, "over", False) and not self.epoch_over:
            self._call("after_train_epoch")
            self._epoch_over()
        self.runner.mode = mode = "val" if inside else "test"
        self.runner.steps[mode] = steps
        if not inside:
            self._call("before_run")
        self._call(f"before_{mode}")

    def test_ends(self, epoch: int | None, error: BaseException | None) -> None:
        """Call ``after_val``."""
        if error is None:
            self._call(f"after_{self.runner.mode}")
            if epoch is None:
                self._call("after_run")
        self.runner.mode = "train"

    def epoch_ends(self) -> None:
        """Count."""
        if not self.epoch_over:
            self._epoch_over()

    def _epoch_over(self) -> None:
        self.epoch_over = True
        self.runner.epoch += 1
        self.runner.log_buffer.clear()

    def run_ends(self, error: BaseException | None) -> None:
        """Call ``after_run``, unless the run has failed."""
        if error is None:
            self._call("after_run")

    def loaded(self, loop: Loop, path: Any, epoch: int, step: int) -> None:
        """Call ``after_load_checkpoint`` with what is known of it."""
        checkpoint: dict[str, Any] = {"meta": {"epoch": epoch, "iter": step, "path": path}}
        model = loop.objects.get("model")
        if model is not None and hasattr(model, "state_dict"):
            checkpoint["state_dict"] = model.state_dict()
        self._call("after_load_checkpoint", checkpoint=checkpoint)


_conductors: weakref.WeakKeyDictionary[Any, Conductor] = weakref.WeakKeyDictionary()


def conductor(loop: Loop) -> Conductor:
    """Return what leads the hooks of a loop."""
    found = _conductors.get(loop)
    if found is None:
        found = _conductors[loop] = Conductor(loop)
    return found
