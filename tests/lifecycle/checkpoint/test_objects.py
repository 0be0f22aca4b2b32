"""Saved states find their way back into the objects, and what does not fit is named."""

from __future__ import annotations

import random
from collections import namedtuple
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from lifecycle import Checkpoint, EarlyStopping, Loop
from lifecycle.checkpoint import MismatchError, adapters, register_adapter


class Model:
    """An object with a state."""

    def __init__(self, **arrays: Any) -> None:
        self.arrays = arrays

    def state_dict(self) -> dict[str, Any]:
        return dict(self.arrays)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, array in state.items():
            self.arrays[name] = np.array(array)


def save(folder: Path, **objects: Any) -> None:
    loop = Loop(lambda _: None, objects=objects)
    loop.attach(Checkpoint(folder))
    loop.fit([1])


def load(folder: Path, *, strict: bool = True, **objects: Any) -> dict[str, Any]:
    loop = Loop(lambda _: None, objects=objects)
    loop.attach(Checkpoint(folder, strict=strict))
    loop.fit([1], resume=True)
    return loop.objects


def test_arrays_are_loaded_in_place(tmp_path: Path) -> None:
    """Who holds on to an array, a dict or a list sees what was loaded."""
    save(tmp_path, w=np.ones(3), tree={"a": [np.ones(2), {"b": np.ones(1)}]}, lr={"lr": 0.5})
    w, tree, settings = np.zeros(3), {"a": [np.zeros(2), {"b": np.zeros(1)}]}, {"lr": 0.1, "x": 1}
    inner: Any = tree["a"]
    first = inner[0]
    load(tmp_path, w=w, tree=tree, lr=settings)
    assert w.tolist() == [1, 1, 1]
    assert first.tolist() == [1, 1]
    assert inner[1]["b"].tolist() == [1]
    assert settings == {"lr": 0.5}


def test_what_cannot_be_written_to_is_replaced(tmp_path: Path) -> None:
    """Numbers, tuples, named tuples and frozen mappings are put in their places anew."""
    pair = namedtuple("pair", "a b")  # noqa: PYI024 -- as optax has them
    frozen = MappingProxyType({"a": np.ones(1)})
    read_only = np.ones(2)
    read_only.flags.writeable = False
    save(tmp_path, n=3, t=(1, np.ones(1)), p=pair(np.ones(1), 2), f=frozen, r=read_only)
    now = load(
        tmp_path,
        n=0,
        t=(0, np.zeros(1)),
        p=pair(np.zeros(1), 0),
        f=MappingProxyType({"a": np.zeros(1)}),
        r=np.broadcast_to(np.float64(0), 2),
    )
    assert now["n"] == 3
    assert now["t"] == (1, np.ones(1))
    assert isinstance(now["p"], pair)
    assert (now["p"].a[0], now["p"].b) == (1, 2)
    assert isinstance(now["f"], MappingProxyType)
    assert now["f"]["a"].tolist() == [1]
    assert now["r"].tolist() == [1, 1]


def test_objects_inside_containers(tmp_path: Path) -> None:
    """Objects with a state are found in dicts and lists, and loaded where they are."""
    save(tmp_path, nets={"g": Model(w=np.ones(1)), "d": [Model(w=np.ones(2))]})
    g, d = Model(w=np.zeros(1)), Model(w=np.zeros(2))
    load(tmp_path, nets={"g": g, "d": [d]})
    assert g.arrays["w"].tolist() == [1]
    assert d.arrays["w"].tolist() == [1, 1]


def test_an_object_without_state_yet_takes_any(tmp_path: Path) -> None:
    """An optimizer that makes its buffers at the first step can be loaded before it."""
    save(tmp_path, optimizer=Model(v=np.ones(2)))
    optimizer = Model()
    load(tmp_path, optimizer=optimizer)
    assert optimizer.arrays["v"].tolist() == [1, 1]


MISFITS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"a": 1}, {"b": 1}, "missing from it: b; not expected in it: a"),
    (
        {"m": Model(w=np.ones(1))},
        {"m": Model(v=np.ones(1))},
        "missing from it: m/v; not expected in it: m/w",
    ),
    (
        {"m": {"x": {"w": np.ones(1)}}},
        {"m": {"x": {"w": np.ones(1), "b": np.ones(1)}}},
        "missing from it: m/x/b",
    ),
    (
        {"w": np.ones((2, 3))},
        {"w": np.ones((3, 2))},
        "different: w (saved float64 [2, 3], here float64 [3, 2])",
    ),
    (
        {"w": np.ones(2, "f4")},
        {"w": np.ones(2, "f8")},
        "different: w (saved float32 [2], here float64 [2])",
    ),
    ({"w": 3}, {"w": np.ones(2)}, "different: w (saved 3, here float64 [2])"),
    ({"w": [1]}, {"w": {"a": np.ones(2)}}, "different: w (saved list of 1, here dict of 1)"),
    (
        {"w": [np.ones(1)]},
        {"w": [np.ones(1)] * 2},
        "different: w (saved list of 1, here list of 2)",
    ),
]


@pytest.mark.parametrize(("saved", "now", "message"), MISFITS)
def test_what_does_not_fit_is_listed(
    saved: dict[str, Any], now: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """Missing, unexpected and different parts are named before anything is loaded."""
    save(tmp_path, **saved)
    with pytest.raises(MismatchError) as caught:
        load(tmp_path, **now)
    assert message in str(caught.value)
    assert "000001-epoch-1-step-1" in str(caught.value)


def test_what_does_not_fit_may_be_left_out(tmp_path: Path) -> None:
    """Without strict the differences are warned of, and what has a counterpart is loaded."""
    save(tmp_path, a=1, b=2)
    with pytest.warns(RuntimeWarning, match="missing from it: c; not expected in it: a"):
        now = load(tmp_path, strict=False, b=0, c=5)
    assert (now["b"], now["c"]) == (2, 5)


@pytest.fixture
def _no_adapters() -> Iterator[None]:
    before = dict(adapters._registered)
    yield
    adapters._registered.clear()
    adapters._registered.update(before)


class Point:
    def __init__(self, x: int) -> None:
        self.x = x


@pytest.mark.usefixtures("_no_adapters")
def test_an_adapter_makes_objects_savable(tmp_path: Path) -> None:
    """What an adapter's load returns stands in the object's place; derived classes count."""

    class Derived(Point):
        pass

    register_adapter(Point, lambda point: {"x": point.x}, lambda point, state: Point(state["x"]))
    save(tmp_path, point=Derived(3), points=[Point(4)])
    now = load(tmp_path, point=Point(0), points=[Point(0)])
    assert now["point"].x == 3
    assert now["points"][0].x == 4


@pytest.mark.parametrize("arguments", [(Point(1), id, id), (Point, 3, id), (Point, id, 3)])
def test_an_adapter_is_made_of_a_class_and_functions(arguments: Any) -> None:
    """Anything else is refused at once."""
    with pytest.raises(TypeError, match=r"an adapter is for a class|save and load are functions"):
        register_adapter(*arguments)


def test_random_generators_are_objects_too(tmp_path: Path) -> None:
    """Generators of random, NumPy and torch go on with the same numbers."""
    made: dict[str, Any] = {
        "python": random.Random(3),  # noqa: S311
        "numpy": np.random.default_rng(3),
        "legacy": np.random.RandomState(3),
    }
    draw: dict[str, Any] = {
        "python": lambda g: g.random(),
        "numpy": lambda g: g.random(),
        "legacy": lambda g: g.random_sample(),
    }
    fresh: dict[str, Any] = {
        "python": random.Random(0),  # noqa: S311
        "numpy": np.random.default_rng(0),
        "legacy": np.random.RandomState(0),
    }
    try:
        import torch
    except ImportError:
        pass
    else:
        made["torch"], fresh["torch"] = torch.Generator(), torch.Generator()
        made["torch"].manual_seed(3)
        draw["torch"] = lambda g: torch.rand(1, generator=g).item()
    save(tmp_path, **made)
    load(tmp_path, **fresh)
    for name, function in draw.items():
        assert function(made[name]) == function(fresh[name])


def test_torch_modules_and_optimizers(tmp_path: Path) -> None:
    """A model and Adam, with its integer keys and tensors, are loaded bit for bit."""
    torch = pytest.importorskip("torch")

    def make(seed: int) -> tuple[Any, Any]:
        torch.manual_seed(seed)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
        return model, torch.optim.Adam(model.parameters())

    def step(model: Any, optimizer: Any) -> None:
        optimizer.zero_grad()
        model(torch.arange(6.0).reshape(2, 3)).pow(2).sum().backward()
        optimizer.step()

    one = make(1)
    step(*one)
    save(tmp_path, model=one[0], optimizer=one[1])
    other = make(2)
    load(tmp_path, model=other[0], optimizer=other[1])
    step(*one)
    step(*other)
    for a, b in zip(one[0].state_dict().values(), other[0].state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_jax_arrays_are_replaced_where_they_stand(tmp_path: Path) -> None:
    """JAX's arrays cannot be written to: their containers get the loaded ones."""
    jax = pytest.importorskip("jax")
    save(tmp_path, params={"w": jax.numpy.ones(3)}, step=jax.numpy.int32(4))
    params = {"w": jax.numpy.zeros(3)}
    now = load(tmp_path, params=params, step=jax.numpy.int32(0))
    assert isinstance(params["w"], jax.Array)
    assert params["w"].tolist() == [1, 1, 1]
    assert int(now["step"]) == 4


def test_torch_tensors_are_loaded_in_place(tmp_path: Path) -> None:
    """Tensors and parameters outside of modules keep their identity and their gradients' flag."""
    torch = pytest.importorskip("torch")
    save(tmp_path, w=torch.ones(3).bfloat16(), p=[torch.nn.Parameter(torch.ones(2))])
    tensor, parameter = torch.zeros(3).bfloat16(), torch.nn.Parameter(torch.zeros(2))
    load(tmp_path, w=tensor, p=[parameter])
    assert tensor.tolist() == [1, 1, 1]
    assert parameter.tolist() == [1, 1]
    assert parameter.requires_grad


def test_a_loop_that_was_resumed_can_begin_anew(tmp_path: Path) -> None:
    """What was loaded is of that run; the next one of the same loop starts with nothing."""
    save(tmp_path, w=np.ones(1))
    loop = Loop(lambda _: {"loss": 1.0}, objects={"w": np.zeros(1)})
    stopping = EarlyStopping("loss", patience=2)
    loop.attach(Checkpoint(tmp_path), stopping)
    with pytest.warns(RuntimeWarning, match="EarlyStopping were not attached"):
        loop.fit([1], epochs=2, resume="auto")
    loop.fit([1], epochs=4, resume="auto")
    loop.fit([1], epochs=1)
    assert stopping.wait == 0
