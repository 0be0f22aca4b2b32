"""The subscribers that know tensors."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
from torch import nn  # noqa: E402
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from lifecycle import Loop  # noqa: E402
from lifecycle.torch import (  # noqa: E402
    EMA,
    EmptyCache,
    FreezeUntil,
    GradStats,
    LRMonitor,
    MemoryStats,
    ModelSummary,
    SeedSampler,
    TorchProfiler,
    TorchScheduler,
    TorchStep,
)


def batches(count: int = 4) -> list[tuple[Any, Any]]:
    generator = torch.Generator().manual_seed(0)
    return [
        (torch.randn(8, 4, generator=generator), torch.randint(0, 3, (8,), generator=generator))
        for _ in range(count)
    ]


def make(**options: Any) -> Any:
    torch.manual_seed(0)
    layers = {"stem": nn.Linear(4, 8), "norm": nn.BatchNorm1d(8), "head": nn.Linear(8, 3)}
    model = nn.Sequential()
    for name, layer in layers.items():
        model.add_module(name, layer)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return TorchStep(model, nn.CrossEntropyLoss(), optimizer, **options)


def test_ema_follows_updates_and_is_what_is_evaluated() -> None:
    """The average of parameters and statistics after each update is in place in validation."""
    step = make(accumulate=2)
    loop: Loop = step.loop()
    ema = EMA(decay=0.5)
    loop.attach(ema)
    expected: dict[str, Any] = {}
    seen: list[bool] = []

    @loop.on("optimizer_step_end")
    def follow() -> None:
        for name, value in step.model.state_dict().items():
            if not expected.get(name, value).is_floating_point() or name not in expected:
                expected[name] = value.clone()
            else:
                expected[name] = torch.lerp(expected[name], value, 0.5)

    @loop.on("test_batch_end")
    def look() -> None:
        now = step.model.state_dict()
        seen.append(all(torch.equal(now[name], value) for name, value in expected.items()))

    plain = make(accumulate=2)
    plain.loop().fit(batches(), epochs=2)
    loop.fit(batches(), epochs=2, validation_data=batches(1))
    assert seen == [True, True]
    assert ema.updates == 4
    after = step.model.state_dict()
    assert all(torch.equal(after[k], v) for k, v in plain.model.state_dict().items())


def test_ema_restores_after_an_error() -> None:
    """What was there comes back also if evaluation fails, and after `applied`."""
    step = make()
    loop: Loop = step.loop()
    ema = EMA(decay=0.5)
    loop.attach(ema)
    loop.fit(batches(), epochs=1)
    before = {name: value.clone() for name, value in step.model.state_dict().items()}
    with pytest.raises(RuntimeError):
        loop.evaluate([(torch.zeros(8, 5), torch.zeros(8))])
    with pytest.raises(ZeroDivisionError), ema.applied(loop):
        _ = 1 / int(torch.equal(step.model.head.weight, before["head.weight"]))
    assert all(torch.equal(before[k], v) for k, v in step.model.state_dict().items())


def test_ema_follows_the_batches_of_a_step_of_ones_own() -> None:
    """Where no TorchStep trains, each batch counts."""
    step = make()
    loop = Loop(lambda _: None, objects={"model": step.model})
    ema = EMA(decay=0.5)
    loop.attach(ema)
    loop.fit([1, 2, 3])
    assert ema.updates == 3


def test_schedulers_are_stepped_at_the_right_point() -> None:
    """By epoch, by step, or by update, which under accumulation are fewer."""
    counts = {}
    for by in ("epoch", "step", "update"):
        step = make(accumulate=2)
        scheduler = StepLR(step.optimizers["optimizer"], 1, 0.5)
        loop = step.loop()
        loop.attach(TorchScheduler(scheduler, by))
        if by == "step":
            with pytest.warns(UserWarning, match="before `optimizer.step"):
                loop.fit(batches(5), epochs=2)
        else:
            loop.fit(batches(5), epochs=2)
        counts[by] = scheduler.last_epoch
    assert counts == {"epoch": 2, "step": 10, "update": 6}


def test_a_plateau_gets_its_metric() -> None:
    """ReduceLROnPlateau is given the monitored metric; a missing one is warned of by name."""
    step = make()
    optimizer = step.optimizers["optimizer"]
    loop: Loop = step.loop()
    plateau = ReduceLROnPlateau(
        optimizer, factor=0.5, patience=0, threshold=10, threshold_mode="abs"
    )
    loop.attach(TorchScheduler(plateau))
    loop.fit(batches(2), epochs=3, validation_data=batches(1))
    assert optimizer.param_groups[0]["lr"] == 0.025
    with pytest.warns(RuntimeWarning, match="no metric 'val_loss'"):
        loop.fit(batches(2), epochs=2)
    with pytest.raises(ValueError, match="by epoch"):
        TorchScheduler(plateau, "step")


def test_learning_rates_of_a_step_of_ones_own() -> None:
    """LRMonitor has them in the logs of batches and epochs."""
    optimizer = make().optimizers["optimizer"]
    loop = Loop(lambda _: {"loss": 1.0}, objects={"optimizer": optimizer})
    loop.attach(LRMonitor())
    seen: list[float] = []
    loop.on("train_batch_end")(lambda logs: seen.append(logs["lr"]))
    history = loop.fit([1, 2])
    assert seen == [0.1, 0.1]
    assert history["lr"] == [0.1]


@pytest.mark.parametrize("until", [{"epoch": 1}, {"step": 4}, {}])
def test_frozen_modules_do_not_change_until_then(until: dict[str, Any]) -> None:
    """Parameters and statistics stand still while frozen, and learn afterwards."""
    step = make()
    loop: Loop = step.loop()
    loop.attach(FreezeUntil("stem", "norm", **until))
    start = {name: value.clone() for name, value in step.model.state_dict().items()}
    changed: list[bool] = []

    @loop.on("epoch_end")
    def look() -> None:
        now = step.model.state_dict()
        changed.append(any(not torch.equal(now[k], v) for k, v in start.items() if "head" not in k))

    loop.fit(batches(4), epochs=2, validation_data=batches(1))
    assert changed == [False, bool(until)]
    assert all(parameter.requires_grad for parameter in step.model.parameters())
    assert all(module.training for module in step.model.modules())


def test_a_module_that_is_not_there_is_told() -> None:
    """A wrong name is an error at the begin, which names the nearest."""
    loop = make().loop()
    with pytest.raises(LookupError, match=r"no module 'heed'.*head"):
        loop.fit(batches(1), subscribers=[FreezeUntil("heed", epoch=1)])
    with pytest.raises(ValueError, match="name the modules"):
        FreezeUntil()
    with pytest.raises(ValueError, match="not both"):
        FreezeUntil("head", epoch=1, step=1)


def test_gradients_are_measured_part_by_part() -> None:
    """The norms of all and of each part are in the logs of batches that update."""
    step = make(accumulate=2)
    loop: Loop = step.loop()
    loop.attach(GradStats(every=2))
    seen: list[Any] = []

    @loop.on("train_batch_end")
    def look(logs: Any) -> None:
        if "grad/all" in logs:
            norm = torch.linalg.vector_norm(step.model.head.weight.grad) ** 2
            norm += torch.linalg.vector_norm(step.model.head.bias.grad) ** 2
            seen.append((logs["grad/head"], float(norm.sqrt())))
            assert logs["grad/all"] > logs["grad/head"]
            assert {"grad/stem", "weight/stem", "weight/all"} <= set(logs)

    loop.fit(batches(8))
    assert len(seen) == 2
    assert all(ours == pytest.approx(expected) for ours, expected in seen)


def test_memory_is_logged_and_the_cache_emptied() -> None:
    """The process's peak is in the logs; emptying a cache that is not there does nothing."""
    loop = make().loop()
    loop.attach(MemoryStats(every=2), EmptyCache(before_epoch=True, after_step=True))
    seen: list[bool] = []
    loop.on("train_batch_end", priority="LOW")(lambda logs: seen.append("memory" in logs))
    history = loop.fit(batches(4))
    assert history["memory"][0] > 1
    assert seen == [False, True, False, True]


def test_samplers_are_told_the_epoch() -> None:
    """set_epoch is called on samplers wherever they are in a loader, each once per epoch."""
    told: list[int] = []

    class Sampler:
        def set_epoch(self, epoch: int) -> None:
            told.append(epoch)

    class Loader:
        def __init__(self) -> None:
            self.sampler = Sampler()
            self.batch_sampler = type("Batches", (), {"sampler": self.sampler})()

    loop = make().loop()
    loop.attach(SeedSampler(Loader()))
    loop.fit(batches(1), epochs=2)
    assert told == [0, 1]
    with pytest.raises(TypeError, match="set_epoch"):
        SeedSampler(DataLoader(batches(1)))  # type: ignore[arg-type]


def test_a_model_is_summed_up() -> None:
    """The table has each part with its parameters, and which of them are trainable."""
    step = make()
    step.model.stem.requires_grad_(False)
    stream = io.StringIO()
    loop: Loop = step.loop()
    loop.attach(ModelSummary(stream=stream))
    loop.fit(batches(1))
    rows = [line.split() for line in stream.getvalue().splitlines()]
    assert rows[0] == ["part", "kind", "parameters", "trainable", "MiB"]
    assert rows[1][:4] == ["all", "Sequential", "83", "43"]
    assert ["stem", "Linear", "40", "0"] in [row[:4] for row in rows]


def test_a_trace_is_written(tmp_path: Path) -> None:
    """After the recorded batches there is a trace; the run goes on without the profiler."""
    step = make()
    loop: Loop = step.loop()
    profiler = TorchProfiler(tmp_path / "traces", wait=1, warmup=1, active=2)
    loop.attach(profiler)
    loop.fit(batches(6))
    assert [path.name for path in profiler.traces] == ["trace-3.json"]
    assert json.loads(profiler.traces[0].read_text(encoding="utf-8"))["traceEvents"]


def test_a_profiler_ends_with_its_run() -> None:
    """A run that is shorter than the profile, or fails, leaves no profiler running."""
    ready: list[Any] = []
    for data in (batches(3), [*batches(3), (None, None)]):
        loop = make().loop()
        loop.attach(TorchProfiler("unused", wait=0, warmup=1, active=9, on_trace=ready.append))
        try:
            loop.fit(data)
        except TypeError:
            continue
    assert len(ready) == 2
    assert not Path("unused").exists()
