"""Schedule and ReduceOnPlateau, on attributes, items, setters and optimizer groups."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from lifecycle import Loop
from lifecycle.subscribers import History, ReduceOnPlateau, Schedule


class Optimizer:
    """What a torch optimizer shows of its learning rates."""

    def __init__(self, *rates: float) -> None:
        self.param_groups = [{"lr": rate} for rate in rates]


def run(subscriber: Any, epochs: int = 3, batches: int = 2, **options: Any) -> History:
    """Run some epochs with one subscriber and return their history."""
    loop = Loop(lambda batch: {"loss": 1.0}, objects=options.pop("objects", {}))
    loop.attach(subscriber)
    return loop.fit([0] * batches, epochs=epochs, **options)


def test_an_attribute_is_set_at_each_epochs_begin() -> None:
    """The function's value for the 0-based epoch stands in the attribute during that epoch."""
    optimizer = SimpleNamespace(lr=0.0)
    loop = Loop(lambda batch: {"loss": optimizer.lr})
    loop.attach(Schedule(lambda epoch: 10 - epoch, optimizer, "lr"))
    history = loop.fit([1, 2], epochs=3)
    assert history["loss"] == [10.0, 9.0, 8.0]
    assert history["lr"] == [10, 9, 8]


def test_by_step_counts_over_the_whole_run() -> None:
    """By step the function is asked before each batch, and steps go on across epochs."""
    config = {"dropout": 1.0}
    seen = []
    loop = Loop(lambda batch: seen.append(config["dropout"]))
    loop.attach(Schedule(lambda step: step / 10, config, "dropout", by="step"))
    loop.fit([1, 2], epochs=2)
    assert seen == [0.0, 0.1, 0.2, 0.3]


def test_a_setter_is_called_and_its_value_logged_under_its_name() -> None:
    """A function as the target gets the value; set_momentum is logged as momentum."""
    values = []

    def set_momentum(value: float) -> None:
        values.append(value)

    history = run(Schedule(lambda epoch: epoch + 1, set_momentum))
    assert values == [1, 2, 3]
    assert history["momentum"] == [1, 2, 3]


def test_nested_attributes_items_and_named_objects_are_reached() -> None:
    """Dots lead into attributes and mappings; a string names one of the loop's objects."""
    model = SimpleNamespace(encoder={"dropout": SimpleNamespace(p=0.5)})
    run(Schedule(lambda epoch: 0.1, "model", "encoder.dropout.p"), objects={"model": model})
    assert model.encoder["dropout"].p == 0.1
    rates = [1, 2]
    run(Schedule(lambda epoch: 7, rates, 1))
    assert rates == [1, 7]


def test_every_group_of_an_optimizer_is_set() -> None:
    """With param_groups each group's item is set; two arguments see each value."""
    optimizer = Optimizer(1.0, 2.0)
    run(Schedule(lambda epoch, lr: lr / 2, optimizer, "lr"), epochs=2)
    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.5]


def test_a_second_parameter_with_a_default_is_not_the_present_value() -> None:
    """Only a required second parameter asks for the value."""
    optimizer = Optimizer(1.0)
    run(Schedule(lambda epoch, base=5.0: base, optimizer, "lr"))
    run(Schedule(math.exp, optimizer, "lr"), epochs=1)
    assert optimizer.param_groups[0]["lr"] == 1.0


def test_a_name_given_for_the_logs_is_used() -> None:
    """Log renames the logged value, so two schedules can stand beside each other."""
    history = run(Schedule(lambda epoch: 1, Optimizer(0.0), "lr", log="lr_head"))
    assert history["lr_head"] == [1, 1, 1]


def test_a_resumed_run_does_not_apply_an_epoch_twice() -> None:
    """An epoch that is entered again keeps its value; the next one goes on from it."""
    whole, first, second = Optimizer(1.0), Optimizer(1.0), Optimizer(1.0)
    run(Schedule(lambda epoch, lr: lr / 2, whole, "lr"), epochs=4)
    before = Schedule(lambda epoch, lr: lr / 2, first, "lr")
    run(before, epochs=2)
    after = Schedule(lambda epoch, lr: lr / 2, second, "lr")
    after.load_state_dict(before.state_dict())
    run(after, epochs=4, initial_epoch=1)
    assert second.param_groups == whole.param_groups


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0.1, {}, "lr"), TypeError, "a schedule is a function"),
        ((lambda epoch: 1, {}), TypeError, "what of {} is to be set"),
        ((lambda epoch, lr: 1, print), TypeError, "a setter cannot tell"),
    ],
)
def test_what_cannot_be_scheduled_is_refused_at_once(
    arguments: Any, error: type[Exception], message: str
) -> None:
    """No function, no key and no way to read the value are told at construction."""
    with pytest.raises(error, match=message):
        Schedule(*arguments)


def test_a_wrong_axis_is_refused() -> None:
    """By is epoch or step."""
    with pytest.raises(ValueError, match='by must be "epoch" or "step"'):
        Schedule(lambda epoch: 1, {}, "lr", by="batch")


@pytest.mark.parametrize(
    ("target", "key", "error", "message"),
    [
        ({"a": 1}, "lr", LookupError, "no item 'lr' to set; there are 'a'"),
        (SimpleNamespace(), "lr", AttributeError, "SimpleNamespace has no attribute 'lr'"),
        ("optimiser", "lr", LookupError, "no object 'optimiser'; it has 'optimizer'"),
    ],
)
def test_a_place_that_is_not_there_says_what_is(
    target: Any, key: str, error: type[Exception], message: str
) -> None:
    """A wrong key or name is told with what there is, before the first batch."""
    loop = Loop(lambda batch: pytest.fail("no batch should run"), objects={"optimizer": {}})
    loop.attach(ReduceOnPlateau(target, key, "loss"))
    with pytest.raises(error, match=message):
        loop.fit([1], epochs=1)


def plateau(losses: list[float], **options: Any) -> list[float]:
    """Return the learning rate of each epoch of a run with these losses."""
    optimizer = Optimizer(1.0)
    loop = Loop(lambda batch: {"loss": batch}, objects={"optimizer": optimizer})
    loop.attach(ReduceOnPlateau(monitor="loss", factor=0.5, **options))
    return loop.fit(lambda epoch: [losses[epoch]], epochs=len(losses))["lr"]


def test_a_plateau_reduces_the_value() -> None:
    """After patience epochs that are not better the value is multiplied by the factor."""
    assert plateau([3, 2, 2, 2, 2, 2], patience=2) == [1, 1, 1, 1, 0.5, 0.5]


def test_cooldown_epochs_are_not_counted() -> None:
    """After a reduction the waiting begins only when the cooldown is over."""
    assert plateau([1] * 7, patience=1, cooldown=2) == [1, 1, 0.5, 0.5, 0.25, 0.25, 0.125]
    assert plateau([1] * 5, patience=1) == [1, 1, 0.5, 0.25, 0.125]


def test_the_value_is_never_set_below_the_minimum() -> None:
    """Minimum bounds the reduction."""
    assert plateau([1] * 5, patience=1, minimum=0.4) == [1, 1, 0.5, 0.4, 0.4]


def test_each_group_is_reduced_by_itself() -> None:
    """Groups with different learning rates keep their ratio."""
    optimizer = Optimizer(1.0, 10.0)
    run(ReduceOnPlateau(optimizer, "lr", "loss", factor=0.1, patience=1), epochs=2)
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 1.0]


def test_a_reduced_value_survives_a_resume() -> None:
    """The reduced value is set again where the target itself was not saved."""
    first, second = Optimizer(1.0), Optimizer(1.0)
    before = ReduceOnPlateau(first, "lr", "loss", patience=1)
    run(before, epochs=2)
    after = ReduceOnPlateau(second, "lr", "loss", patience=1)
    after.load_state_dict(before.state_dict())
    run(after, epochs=2, initial_epoch=2)
    assert second.param_groups[0]["lr"] == 0.1
    assert "on loss wait=0/1" in repr(after)


@pytest.mark.parametrize("factor", [0, 1, 1.5, -0.1])
def test_a_factor_that_does_not_reduce_is_refused(factor: float) -> None:
    """The factor lies between 0 and 1."""
    with pytest.raises(ValueError, match="factor must lie between 0 and 1"):
        ReduceOnPlateau({}, "lr", "loss", factor=factor)


def test_a_plateau_needs_a_value_it_can_read() -> None:
    """A setter as the target is refused: a reduction starts from the present value."""
    with pytest.raises(TypeError, match="a setter cannot tell; name an attribute or an item"):
        ReduceOnPlateau(print, None, "loss")  # type: ignore[arg-type]


def test_partial_epochs_and_missing_metrics_are_not_counted() -> None:
    """An epoch cut by a stop, or without the metric, is no epoch of a plateau."""
    optimizer = Optimizer(1.0)
    loop = Loop(lambda batch: {"loss": 1.0}, lambda batch: {"loss": 1.0})
    loop.attach(ReduceOnPlateau(optimizer, "lr", "val_loss", patience=2))
    loop.on("train_batch_end", at=[12])(lambda loop: loop.stop())
    loop.fit([1, 2], epochs=7, validation_data=[1], validation_freq=2)
    assert optimizer.param_groups == [{"lr": 0.1}]


def test_a_function_that_hides_its_parameters_is_called_with_the_index() -> None:
    """Where no signature can be had, the epoch alone is given."""

    class Hidden:
        __signature__ = "none"

        def __call__(self, epoch: int) -> int:
            return epoch

    assert run(Schedule(Hidden(), Optimizer(0.0), "lr"))["lr"] == [0, 1, 2]
