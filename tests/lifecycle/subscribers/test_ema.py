"""EMA: the average, swapped in for evaluation and always out again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lifecycle import Loop
from lifecycle.subscribers import EMA


class Model:
    """A model with one weight and a state of its own."""

    def __init__(self) -> None:
        self.weight = np.zeros(1)

    def state_dict(self) -> dict[str, Any]:
        return {"weight": self.weight}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.weight[...] = state["weight"]


def make(model: Any, ema: EMA, seen: list[float] | None = None) -> Loop:
    """Return a loop that adds 1 to the weight per step and notes it when it evaluates."""
    seen = [] if seen is None else seen

    def weight() -> Any:
        return model.weight if isinstance(model, Model) else model["weight"]

    def step(batch: int) -> None:
        weight()[...] += 1.0

    def look(batch: int) -> None:
        if batch < 0:
            raise ZeroDivisionError
        seen.append(float(weight()[0]))

    loop = Loop(step, look, predict_step=look, objects={"model": model})
    loop.attach(ema)
    return loop


@pytest.mark.parametrize("model", [Model, lambda: {"weight": np.zeros(1)}])
def test_the_average_is_what_the_formula_says(model: Any) -> None:
    """After each step the average keeps decay of itself; it starts as the first step's value."""
    ema = EMA(decay=0.5)
    make(model(), ema).fit([0, 0, 0], epochs=1)
    assert ema.updates == 3
    assert ema.average["weight"].tolist() == [0.5 * (0.5 * 1 + 0.5 * 2) + 0.5 * 3]


def test_warmup_forgets_the_start_quickly() -> None:
    """With warmup the second step keeps no more than 2/11 of the first."""
    ema = EMA(decay=0.9, warmup=True)
    make(Model(), ema).fit([0, 0], epochs=1)
    assert ema.average["weight"][0] == pytest.approx(1 * 2 / 11 + 2 * 9 / 11)


def test_each_nth_step_can_be_taken() -> None:
    """Every leaves the steps between out."""
    ema = EMA(decay=0.5, every=2)
    make(Model(), ema).fit([0] * 5, epochs=1)
    assert ema.updates == 2


def test_skipped_batches_do_not_count() -> None:
    """A batch that was skipped changed nothing and is not averaged."""
    ema = EMA()
    loop = make(Model(), ema)
    loop.on("train_batch_begin", at=[1])(lambda loop: loop.skip_batch())
    loop.fit([0, 0, 0], epochs=1)
    assert ema.updates == 2


def test_validation_sees_the_average_and_training_does_not() -> None:
    """The average stands in the model's place from test_begin to test_end."""
    model, seen = Model(), list[float]()
    make(model, EMA(decay=0.5), seen).fit([0, 0], epochs=1, validation_data=[0])
    assert seen == [1.5]
    assert model.weight.tolist() == [2.0]


def test_evaluate_and_predict_after_the_run_use_the_average() -> None:
    """Passes of their own are run with it too, unless evaluate=False."""
    for evaluate, expected in ((True, 1.5), (False, 2.0)):
        model, seen = Model(), list[float]()
        loop = make(model, EMA(decay=0.5, evaluate=evaluate), seen)
        loop.fit([0, 0], epochs=1)
        loop.evaluate([0])
        loop.predict([0])
        assert seen == [expected, expected]
        assert model.weight.tolist() == [2.0]


def test_the_model_comes_back_after_an_error() -> None:
    """A step that raises during evaluation leaves the model's own values in place."""
    model = Model()
    loop = make(model, ema := EMA(decay=0.5))
    loop.fit([0, 0], epochs=1)
    for fail in (loop.evaluate, loop.predict):
        with pytest.raises(ZeroDivisionError):
            fail([-1])
        assert model.weight.tolist() == [2.0]
        assert not ema.active


def test_applied_swaps_inside_a_with_block_only() -> None:
    """Applied puts the average in place, nests, and restores also on an error."""
    model = Model()
    loop = make(model, ema := EMA(decay=0.5))
    loop.fit([0, 0], epochs=1)
    with pytest.raises(KeyError), ema.applied(loop):  # noqa: PT012
        with ema.applied(loop):
            assert ema.active
        assert model.weight.tolist() == [1.5]
        raise KeyError
    assert model.weight.tolist() == [2.0]


def test_a_swap_that_fails_half_way_is_undone() -> None:
    """If the average does not fit, the model keeps its values and the error comes out."""
    params = {"a": np.zeros(1), "weight": np.zeros(1)}
    loop = make(params, ema := EMA(decay=0.5))
    loop.fit([0], epochs=1)
    params["a"] += 7
    ema.average["weight"] = object()

    class Stubborn(dict[str, Any]):
        def __setitem__(self, key: str, value: Any) -> None:
            if not hasattr(value, "shape"):
                raise TypeError("no array")
            super().__setitem__(key, value)

    loop.objects["model"] = Stubborn(params)
    with pytest.raises(TypeError, match="no array"), ema.applied(loop):
        pytest.fail("the block should not run")
    assert loop.objects["model"]["a"].tolist() == [7.0]
    assert not ema.active


def test_functional_parameters_are_replaced_and_put_back() -> None:
    """Immutable JAX arrays, replaced among the objects by each step, are averaged and swapped."""
    jnp = pytest.importorskip("jax.numpy")
    seen = []
    loop = Loop(objects={"params": {"w": jnp.zeros(1)}})

    def step(batch: int) -> None:
        loop.objects["params"] = {"w": loop.objects["params"]["w"] + 1.0}

    loop.train_step = step
    loop.test_step = lambda batch: seen.append(float(loop.objects["params"]["w"][0]))
    loop.attach(EMA("params", decay=0.5))
    loop.fit([0, 0], epochs=1, validation_data=[0])
    assert seen == [1.5]
    assert loop.objects["params"]["w"].tolist() == [2.0]


def test_a_torch_module_is_averaged() -> None:
    """Parameters and buffers of a module; its integer buffers are taken over."""
    torch = pytest.importorskip("torch")
    module = torch.nn.BatchNorm1d(2)
    ema = EMA(module, decay=0.5)

    def step(batch: int) -> None:
        module(torch.ones(4, 2))
        with torch.no_grad():
            module.weight += 1

    loop = Loop(step, lambda batch: {"w": module.weight[0]})
    loop.attach(ema)
    history = loop.fit([0, 0], epochs=1, validation_data=[0])
    assert history["val_w"] == [2.5]
    assert module.weight.tolist() == [3.0, 3.0]
    assert int(ema.average["num_batches_tracked"]) == 2


def test_a_saved_average_is_gone_on_with() -> None:
    """A resumed run's average is an uninterrupted one's."""
    whole, first, second = EMA(decay=0.5), EMA(decay=0.5), EMA(decay=0.5)
    make(Model(), whole).fit([0], epochs=4)
    model = Model()
    make(model, first).fit([0], epochs=2)
    second.load_state_dict(first.state_dict())
    make(model, second).fit([0], epochs=4, initial_epoch=2)
    assert second.average["weight"].tolist() == whole.average["weight"].tolist()


def test_another_loops_passes_are_left_alone() -> None:
    """Evaluating one loop does not put the average of another's model in place."""
    model, seen = Model(), list[float]()
    ema = EMA(decay=0.5)
    make(model, ema).fit([0, 0], epochs=1)
    other = make(Model(), ema, seen)
    other.evaluate([0])
    assert seen == [0.0]


def test_a_name_that_the_loop_has_not_is_told_before_the_first_batch() -> None:
    """The message lists the loop's objects."""
    loop = Loop(lambda batch: pytest.fail("no batch should run"), objects={"net": {}})
    loop.attach(EMA())
    with pytest.raises(LookupError, match="no object 'model'; it has 'net'"):
        loop.fit([0], epochs=1)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"decay": 1.0}, ValueError, "decay must be 0 or more and below 1"),
        ({"every": 0}, ValueError, "every is a number of steps"),
        ({"target": 3}, TypeError, "EMA averages a dict of arrays"),
    ],
)
def test_bad_options_are_refused_at_once(
    options: Any, error: type[Exception], message: str
) -> None:
    """decay, every and the target are checked at construction."""
    with pytest.raises(error, match=message):
        EMA(**options)
    assert repr(EMA()) == "<EMA decay=0.999 updates=0>"
