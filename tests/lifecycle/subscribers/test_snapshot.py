"""Copies of objects and arrays, put back; averages over trees of arrays."""

from __future__ import annotations

from collections import OrderedDict
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest

from lifecycle.subscribers.snapshot import blend, capture, copied, restore, widened

KINDS = ["numpy", "torch", "jax"]


class Pair(NamedTuple):
    """A tree node that takes its items one by one."""

    left: Any
    right: Any


class Model:
    """An object with a state of its own."""

    def __init__(self) -> None:
        self.weights = np.zeros(2)

    def state_dict(self) -> dict[str, Any]:
        return {"weights": self.weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.weights = state["weights"]


def make(kind: str, values: list[float], dtype: str = "float32") -> Any:
    """Return an array of that library, which is skipped where it is not installed."""
    if kind == "numpy":
        return np.array(values, dtype=dtype)
    if kind == "torch":
        torch = pytest.importorskip("torch")
        return torch.tensor(values, dtype=getattr(torch, dtype))
    return pytest.importorskip("jax.numpy").array(values, dtype=dtype)


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_shares_no_memory_with_the_original(kind: str) -> None:
    """Changing an array after the copy was taken leaves the copy as it was."""
    tree = {"a": make(kind, [1.0, 2.0]), "b": [make(kind, [3.0]), (make(kind, [4.0]), "text", 5)]}
    saved = copied(tree)
    if kind != "jax":
        tree["a"] *= 0
    np.testing.assert_array_equal(np.asarray(saved["a"]), [1.0, 2.0])
    assert saved["a"] is not tree["a"]
    assert saved["b"][1][1:] == ("text", 5)


def test_the_kinds_of_containers_are_kept() -> None:
    """Dicts, read-only mappings, lists, tuples and named tuples come back as what they were."""
    tree = Pair({"x": [1]}, (MappingProxyType({"y": 2}), OrderedDict(z=3)))
    saved = copied(tree)
    assert isinstance(saved, Pair)
    assert isinstance(saved.right[0], MappingProxyType)
    assert saved == tree
    assert saved.left["x"] is not tree.left["x"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_captured_comes_back(kind: str) -> None:
    """After restore the arrays have the captured values, whatever was done in between."""
    objects: dict[str, Any] = {
        "params": {"w": make(kind, [1.0, 2.0]), "layers": [make(kind, [3.0])]}
    }
    saved = capture(objects["params"])
    objects["params"]["w"] = make(kind, [9.0, 9.0])
    objects["params"]["layers"][0] = make(kind, [9.0])
    objects["params"]["extra"] = 1
    restore(objects, "params", saved)
    np.testing.assert_array_equal(np.asarray(objects["params"]["w"]), [1.0, 2.0])
    np.testing.assert_array_equal(np.asarray(objects["params"]["layers"][0]), [3.0])
    assert "extra" not in objects["params"]


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_arrays_that_can_be_written_are_restored_in_place(kind: str) -> None:
    """Others may hold on to an array, so its values change and not the array."""
    array = make(kind, [1.0, 2.0])
    objects = {"w": array}
    saved = capture(array)
    array += 1
    restore(objects, "w", saved)
    assert objects["w"] is array
    np.testing.assert_array_equal(np.asarray(array), [1.0, 2.0])


def test_torch_parameters_are_restored_without_a_graph() -> None:
    """A leaf that requires a gradient is written without an error."""
    torch = pytest.importorskip("torch")
    parameter = torch.nn.Parameter(torch.ones(2))
    saved = capture(parameter)
    with torch.no_grad():
        parameter.zero_()
    restore({"p": parameter}, "p", saved)
    assert parameter.tolist() == [1.0, 1.0]
    assert parameter.requires_grad


def test_objects_are_restored_through_their_own_methods() -> None:
    """An object gets a copy of the captured state, so the capture can be used again."""
    model = Model()
    saved = capture(model)
    model.weights += 5
    restore({"model": model}, "model", saved)
    assert model.weights.tolist() == [0.0, 0.0]
    model.weights += 5
    assert saved["weights"].tolist() == [0.0, 0.0]


def test_items_that_are_gone_and_tuples_are_put_back() -> None:
    """A missing item is added; an immutable node is replaced as a whole; shapes may change."""
    objects: dict[str, Any] = {"d": {"a": 1, "b": [1, 2]}, "t": (1, np.ones(2)), "n": np.ones(3)}
    saved = {name: capture(thing) for name, thing in objects.items()}
    objects["d"] = {"b": [1]}
    objects["t"] = (5, np.zeros(2))
    objects["n"] = np.zeros(1)
    for name, state in saved.items():
        restore(objects, name, state)
    assert objects["d"] == {"a": 1, "b": [1, 2]}
    assert objects["t"][0] == 1
    assert objects["t"][1].tolist() == [1.0, 1.0]
    assert objects["n"].tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("kind", KINDS)
def test_an_average_of_small_floats_is_kept_in_32_bits(kind: str) -> None:
    """Half precision could not hold small changes; restoring goes back to the array's own type."""
    value = {"w": make(kind, [1.0], "float16"), "n": make(kind, [3], "int32"), "s": [2.5]}
    average = widened(value)
    assert "float32" in str(average["w"].dtype)
    for _ in range(100):
        average = blend(average, {**value, "w": make(kind, [1.001], "float16")}, 0.99)
    assert 1.0 < float(average["w"][0]) < 1.001
    restore(value_holder := {"v": value}, "v", average)
    assert "float16" in str(value_holder["v"]["w"].dtype)


@pytest.mark.parametrize("kind", KINDS)
def test_blend_averages_floats_and_takes_over_the_rest(kind: str) -> None:
    """Floats are averaged through all containers; counts and new items are copied."""
    old = {"w": make(kind, [0.0]), "n": make(kind, [1], "int32"), "t": (make(kind, [4.0]),)}
    new = {"w": make(kind, [1.0]), "n": make(kind, [2], "int32"), "t": (make(kind, [8.0]),), "k": 1}
    mixed = blend(widened(old), new, 0.75)
    assert float(mixed["w"][0]) == 0.25
    assert float(mixed["t"][0][0]) == 5.0
    assert int(mixed["n"][0]) == 2
    assert mixed["k"] == 1


def test_complex_arrays_are_averaged() -> None:
    """Complex numbers are averaged as floats are."""
    assert blend(np.array([0j]), np.array([2 + 2j]), 0.5)[0] == 1 + 1j
