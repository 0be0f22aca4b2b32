"""The logs mapping and the running means."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle import Logs, Loop
from lifecycle.logs import Means, admit, batch_size


class Device:
    """An array of one element on a device that counts its copies to the host."""

    copies = 0
    shape = ()
    ndim = 0
    dtype = type("float32", (), {"itemsize": 4, "kind": "f"})

    def __init__(self, value: float) -> None:
        self.value = value

    def __add__(self, other: Any) -> Device:
        return Device(self.value + (other.value if isinstance(other, Device) else other))

    __radd__ = __add__

    def __mul__(self, other: float) -> Device:
        return Device(self.value * other)

    __rmul__ = __mul__

    def __truediv__(self, other: float) -> Device:
        return Device(self.value / other)

    def __float__(self) -> float:
        Device.copies += 1
        return self.value

    def __bool__(self) -> bool:
        raise AssertionError("the device was waited for")


@pytest.fixture(autouse=True)
def _no_copies_yet() -> None:
    Device.copies = 0


def test_reading_a_device_value_gives_a_float_once() -> None:
    """Reading copies to the host, and a second read does not copy again."""
    logs = Logs({"loss": Device(0.5)})
    assert "loss" in logs
    assert len(logs) == 1
    assert Device.copies == 0
    assert logs["loss"] == logs["loss"] == 0.5
    assert type(logs["loss"]) is float
    assert Device.copies == 1


def test_raw_gives_the_value_untouched() -> None:
    """``raw`` hands out what is on the device."""
    value = Device(0.5)
    assert Logs({"loss": value}).raw("loss") is value
    assert Device.copies == 0


def test_changing_a_value_is_seen_by_who_reads_later() -> None:
    """Logs are mutable, and what was read before a change is not what is read after it."""
    logs = Logs({"loss": Device(1.0)})
    assert logs["loss"] == 1.0
    logs["loss"] = Device(2.0)
    assert dict(logs) == {"loss": 2.0}
    del logs["loss"]
    assert not logs
    assert repr(Logs({"a": Device(1.0)})) == "Logs({'a': 1.0})"


def test_a_missing_metric_is_named_with_those_there_are() -> None:
    """A KeyError lists the names in the logs."""
    with pytest.raises(KeyError, match="'los' is not in the logs, which hold 'loss', 'acc'"):
        Logs({"loss": 1, "acc": 2})["los"]
    assert Logs().get("loss") is None


def test_what_is_not_one_number_reads_as_it_is() -> None:
    """Arrays of several elements, text and numbers of Python are not converted."""
    import numpy as np

    confusion = np.eye(2)
    logs = Logs({"confusion": confusion, "note": "x", "n": 3, "word": np.array("one")})
    assert logs["confusion"] is confusion
    assert logs["note"] == "x"
    assert type(logs["n"]) is int
    assert logs["word"] == "one"


def test_nothing_is_copied_to_the_host_before_somebody_reads() -> None:
    """An epoch in which nobody reads batch logs converts each of its metrics once."""
    seen = []
    loop = Loop(lambda batch: {"loss": Device(batch), "acc": Device(1.0)})
    loop.connect("train_batch_end", lambda logs: seen.append(len(logs)))
    history = loop.fit([1.0, 2.0, 3.0])
    assert Device.copies == 2
    assert history.to_dict() == {"loss": [2.0], "acc": [1.0]}
    assert seen == [2, 2, 2]


def test_batch_logs_hold_the_batch_and_its_running_mean() -> None:
    """``logs[...]`` is this batch's value, ``logs.mean`` the mean with this batch in it."""
    seen = []
    loop = Loop(lambda batch: {"loss": batch})
    loop.connect("train_batch_end", lambda logs: seen.append((logs["loss"], logs.mean("loss"))))
    loop.fit([1.0, 3.0, 8.0])
    assert seen == [(1.0, 1.0), (3.0, 2.0), (8.0, 4.0)]


def test_a_mean_outside_of_a_batch_is_the_value_itself() -> None:
    """At ``epoch_end``, ``logs.mean`` is what ``logs`` holds."""
    seen = []
    loop = Loop(lambda batch: {"loss": batch})
    loop.connect("epoch_end", lambda logs: seen.append(logs.mean("loss")))
    loop.fit([1.0, 3.0])
    assert seen == [2.0]


def test_what_a_subscriber_adds_to_batch_logs_is_seen_but_not_averaged() -> None:
    """Later subscribers see an added key; the epoch does not; ``mean`` says what to do."""
    seen = []
    loop = Loop(lambda batch: {"loss": batch})
    loop.connect("train_batch_end", lambda logs: logs.update(lr=0.1))

    def look(logs: Logs) -> None:
        seen.append(logs["lr"])
        with pytest.raises(KeyError, match=r"'lr' is not averaged; loop\.log would have it so"):
            logs.mean("lr")

    loop.connect("train_batch_end", look)
    assert "lr" not in loop.fit([1.0])
    assert seen == [0.1]


def test_means_are_weighted_by_the_batch_size_that_the_step_returns() -> None:
    """``batch_size`` is the weight and no metric."""
    loop = Loop(lambda batch: {"loss": batch[0], "batch_size": batch[1]})
    seen = []
    loop.connect("train_batch_end", lambda logs: seen.append(dict(logs)))
    history = loop.fit([(1.0, 1), (4.0, 2)])
    assert history.to_dict() == {"loss": [3.0]}
    assert seen == [{"loss": 1.0}, {"loss": 4.0}]


def test_means_are_weighted_by_the_length_of_the_first_array() -> None:
    """Without ``batch_size`` the first array of the batch decides."""
    import numpy as np

    loop = Loop(lambda batch: {"loss": float(batch["x"][0, 0])})
    data = [{"x": np.full((n, 2), value)} for n, value in ((3, 1.0), (1, 5.0))]
    assert loop.fit(data)["loss"] == [2.0]


@pytest.mark.parametrize(
    ("batch", "size"),
    [(3, 1), ("text", 1), ((), 1), ([], 1), ({}, 1), ([1, 2, 3], 1), (None, 1), (object(), 1)],
)
def test_a_batch_without_an_array_weighs_one(batch: object, size: int) -> None:
    """Where there is no array, the weight is 1."""
    assert batch_size(batch) == size


def test_the_first_array_is_looked_for_inside() -> None:
    """Tuples, lists and mappings are looked into."""
    import numpy as np

    array = np.zeros((4, 2))
    assert batch_size(array) == 4
    assert batch_size(np.float64(1)) == 1
    assert batch_size(({"a": [array]}, 3)) == 4


@pytest.mark.parametrize(
    ("value", "kind"),
    [("a", "str"), (None, "NoneType"), ([1.0], "list"), ({}, "dict"), (1j, "complex")],
)
def test_a_metric_that_is_no_number_is_refused_at_once(value: object, kind: str) -> None:
    """The error names the key and the type, and comes from the batch that returned it."""
    done = []

    def step(batch: int) -> dict[str, object]:
        done.append(batch)
        return {"loss": value}

    loop = Loop(step)
    with pytest.raises(TypeError, match=rf"^metric 'loss' must be a number, not {kind}\b"):
        loop.fit([1, 2])
    assert done == [1]


def test_an_array_of_several_elements_is_refused_with_its_shape() -> None:
    """The error says which shape it has; one element of any shape is a number."""
    import numpy as np

    with pytest.raises(TypeError, match=r"numpy.ndarray of shape \(3,\); reduce it first"):
        admit("loss", np.zeros(3))
    with pytest.raises(TypeError, match="must be a number"):
        admit("loss", np.array("text"))
    assert admit("loss", np.ones((1, 1))).shape == ()
    assert admit("loss", Fraction(1, 2)) == 0.5
    assert type(admit("loss", np.float32(2))) is float


def test_a_metric_has_a_str_for_a_name() -> None:
    """Another key is refused."""
    with pytest.raises(TypeError, match="a metric's name must be a str, not 1"):
        Loop(lambda batch: {1: 2.0}).fit([1])


@pytest.mark.parametrize("size", ["two", None, True])
def test_a_batch_size_is_a_number(size: object) -> None:
    """Another is refused."""
    with pytest.raises(TypeError, match="batch_size must be a number"):
        Loop(lambda batch: {"loss": 1.0, "batch_size": size}).fit([1])


@given(
    st.lists(st.tuples(st.floats(-1e6, 1e6), st.integers(1, 50)), min_size=1, max_size=30),
    st.integers(0, 30),
)
def test_means_are_exact_and_survive_being_saved(values: list[tuple[float, int]], cut: int) -> None:
    """A weighted mean is that of the definition, and saving it in between changes no bit."""
    whole, first, second = Means(), Means(), Means()
    for number, (value, weight) in enumerate(values):
        whole.add({"m": value}, weight)
        (first if number < cut else second).add({"m": value}, weight)
        if number == cut - 1:
            second.load_state_dict(first.state_dict())
    expected = sum(v * w for v, w in values) / sum(w for _, w in values)
    assert whole.result("m") == pytest.approx(expected, rel=1e-9, abs=1e-6)
    if cut < len(values):
        assert second.result("m") == whole.result("m")


@pytest.mark.parametrize(
    ("reduce", "expected"), [("mean", 2.0), ("sum", 6.0), ("min", 1.0), ("max", 3.0), ("last", 2.0)]
)
@pytest.mark.parametrize("library", ["python", "numpy", "torch", "jax"])
def test_every_reduction_in_every_library(reduce: str, expected: float, library: str) -> None:
    """``loop.log`` reduces numbers of Python, NumPy, torch and JAX alike."""
    make: Any = float
    if library == "numpy":
        make = pytest.importorskip("numpy").array
    elif library == "torch":
        make = pytest.importorskip("torch").tensor
    elif library == "jax":
        make = pytest.importorskip("jax.numpy").float32

    loop = Loop(lambda batch: loop.log(m=make(batch), reduce=reduce))
    assert loop.fit([1.0, 3.0, 2.0])["m"] == [expected]


def test_a_metric_is_reduced_in_one_way() -> None:
    """An unknown reduction and a second one for the same metric are refused."""

    def step(batch: int) -> None:
        with pytest.raises(ValueError, match="must be one of mean, sum, min, max, last, not 'avg'"):
            loop.log(m=1, reduce="avg")
        loop.log(m=1, reduce="sum")
        with pytest.raises(ValueError, match="'m' is reduced by sum in this pass, not by mean"):
            loop.log(m=1)

    loop = Loop(step)
    assert loop.fit([1, 2])["m"] == [2]


def test_a_sum_counts_every_call_in_a_batch() -> None:
    """Logged several times within a batch, a sum adds up and a mean takes the last value."""

    def step(batch: int) -> None:
        for value in (1, 2):
            loop.log(tokens=value, reduce="sum")
            loop.log(loss=value)

    loop = Loop(step)
    assert loop.fit([1, 2]).to_dict() == {"tokens": [6], "loss": [2.0]}


def test_log_lands_in_what_is_innermost() -> None:
    """In a step, at a batch's end, at an epoch's begin and end, at the run's begin."""
    loop = Loop(lambda batch: loop.log(inner=batch))
    ends: list[tuple[str, dict[str, Any]]] = []
    loop.connect("train_begin", lambda: loop.log(run=7))
    loop.connect("epoch_begin", lambda: loop.log(lr=0.1))
    loop.connect("train_batch_end", lambda batch: loop.log(late=batch))
    loop.connect("epoch_end", lambda: loop.log(score=5))
    for point in ("train_batch_end", "epoch_end", "train_end"):
        loop.connect(
            point, lambda signal, logs: ends.append((signal, dict(logs))), priority="LOWEST"
        )
    loop.fit([1, 3])
    assert ends == [
        ("train_batch_end", {"inner": 1, "late": 0}),
        ("train_batch_end", {"inner": 3, "late": 1}),
        ("epoch_end", {"lr": 0.1, "inner": 2.0, "late": 0.5, "score": 5}),
        ("train_end", {"lr": 0.1, "inner": 2.0, "late": 0.5, "score": 5, "run": 7}),
    ]


def test_log_and_the_step_together() -> None:
    """What is logged within a step is averaged with the weight that the step returns."""

    def step(batch: tuple[float, int]) -> dict[str, float]:
        loop.log(own=batch[0])
        return {"loss": batch[0], "batch_size": batch[1]}

    loop = Loop(step)
    assert loop.fit([(1.0, 1), (4.0, 2)]).to_dict() == {"own": [3.0], "loss": [3.0]}


def test_logging_at_rest_is_refused() -> None:
    """There is nothing to log into outside of a run."""
    with pytest.raises(RuntimeError, match="no stage of this loop is running"):
        Loop().log(loss=1)


def test_the_last_epochs_logs_are_those_of_the_run() -> None:
    """``train_end`` has the last epoch's logs with all that subscribers added."""
    seen = []
    loop = Loop(lambda batch: {"loss": batch})
    loop.connect("epoch_end", lambda epoch, logs: logs.update(mark=epoch))
    loop.connect("train_end", lambda logs: seen.append(dict(logs)))
    loop.fit([1.0], epochs=2)
    assert seen == [{"loss": 1.0, "mark": 1}]


def test_torch_metrics_are_detached_and_widened() -> None:
    """A mean keeps no graph alive, adds half precision in single, and keeps the caller's own."""
    torch = pytest.importorskip("torch")
    weight = torch.tensor(1.0, requires_grad=True)
    means = Means()
    buffer = torch.tensor(2.0)
    for _ in range(4):
        means.add({"graph": weight * 3, "buffer": buffer}, 1)
        buffer += 1
    assert buffer == 6
    assert not means.result("graph").requires_grad
    assert float(means.result("buffer")) == 3.5
    halves = Means()
    for _ in range(4096):
        halves.add({"half": torch.tensor(1.0, dtype=torch.float16)}, 1)
    assert halves.result("half").dtype == torch.float32
    assert float(halves.result("half")) == 1.0


def test_a_torch_metric_of_another_shape_is_refused_too() -> None:
    """Also after many batches of the right shape; one element of any shape is right."""
    torch = pytest.importorskip("torch")
    means = Means()
    for _ in range(3):
        means.add({"loss": torch.tensor(1.0)}, 1)
    means.add({"loss": torch.ones(1)}, 1)
    with pytest.raises(TypeError, match=r"metric 'loss' .* shape \(2,\)"):
        means.add({"loss": torch.ones(2)}, 1)
    assert float(means.result("loss")) == 1.0


@pytest.mark.parametrize("library", ["torch", "jax", "numpy"])
def test_arrays_resume_exactly(library: str) -> None:
    """Means of arrays go on from a saved state without a change of any bit."""
    make: Any = {
        "torch": lambda: pytest.importorskip("torch").tensor,
        "jax": lambda: pytest.importorskip("jax.numpy").float32,
        "numpy": lambda: pytest.importorskip("numpy").float32,
    }[library]()
    values = [(0.1 * n, 3 + n % 2) for n in range(20)]
    whole, first, second = Means(), Means(), Means()
    for number, (value, weight) in enumerate(values):
        whole.add({"m": make(value)}, weight)
        (first if number < 11 else second).add({"m": make(value)}, weight)
        if number == 10:
            second.load_state_dict(first.state_dict())
    assert float(second.result("m")) == float(whole.result("m"))


def test_half_precision_of_any_library_is_widened() -> None:
    """bfloat16 of JAX is added up in float32; a minimum of half floats stays a number."""
    jnp = pytest.importorskip("jax.numpy")
    means = Means()
    for _ in range(1000):
        means.add({"m": jnp.bfloat16(1.0)}, 1)
    assert means.result("m").dtype == jnp.float32
    assert float(means.result("m")) == 1.0


def test_an_unknown_mean_lists_what_is_averaged() -> None:
    """Also where nothing is."""
    with pytest.raises(KeyError, match="Averaged are none yet"):
        Means().result("loss")


@pytest.mark.parametrize(("reduce", "expected"), [("mean", 2.0), ("min", 1.0), ("max", 3.0)])
def test_a_mixture_of_host_and_device_values(reduce: str, expected: float) -> None:
    """A metric may be a float in one batch and an array in the next."""
    torch = pytest.importorskip("torch")
    loop = Loop(lambda batch: loop.log(m=batch, reduce=reduce))
    assert loop.fit([2.0, torch.tensor(3.0), 1.0])["m"] == [expected]


def test_a_batch_size_may_be_a_number_of_numpy() -> None:
    """Anything that is a number by its ``item`` will do."""
    numpy = pytest.importorskip("numpy")
    loop = Loop(lambda batch: {"loss": batch, "batch_size": numpy.int64(batch)})
    assert loop.fit([1.0, 3.0])["loss"] == [2.5]
