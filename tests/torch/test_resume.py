"""A run with everything on it, stopped anywhere and resumed: nothing differs, to the last bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")
from torch import nn  # noqa: E402
from torch.optim.lr_scheduler import (  # noqa: E402  # noqa: E402
    LinearLR,
    MultiStepLR,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
)
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from lifecycle import Loop  # noqa: E402
from lifecycle.checkpoint import Checkpoint  # noqa: E402
from lifecycle.torch import (  # noqa: E402
    EMA,
    Cosine,
    Exp,
    LRSchedule,
    MomentumSchedule,
    TorchScheduler,
    TorchStep,
    WarmUp,
)

EPOCHS, STEPS = 3, 7


class Interrupted(Exception):  # noqa: N818 -- it is no error of the run's
    pass


def loader(size: int = 8) -> Any:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(STEPS * size - 3, 4, generator=generator)
    return DataLoader(TensorDataset(inputs, (inputs.sum(1) > 0).long()), size, shuffle=True)


def make(folder: Path, **options: Any) -> tuple[TorchStep, Loop]:
    """Return a step and its loop, with a model whose dropout draws from the global stream."""
    torch.manual_seed(3)
    model = nn.Sequential(
        nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step = TorchStep(model, nn.CrossEntropyLoss(), optimizer, **options)
    loop = step.loop()
    loop.attach(Checkpoint(folder, steps=1, keep=None, background=False))
    loop.attach(EMA(decay=0.9))
    loop.attach(LRSchedule(Cosine(minimum=0.001), by="step", warmup=WarmUp(5)))
    loop.attach(MomentumSchedule(Exp(0.9)))
    return step, loop


def states(step: TorchStep, loop: Any) -> dict[str, Any]:
    """Return all tensors and logs that a run has come to."""
    found = {f"model.{k}": v for k, v in step.model.state_dict().items()}
    for index, state in step.optimizers["optimizer"].state_dict()["state"].items():
        found[f"momentum.{index}"] = state["momentum_buffer"]
    ema = next(each for each in loop.owners() if isinstance(each, EMA))
    found |= {f"ema.{k}": v for k, v in ema.average.items()}
    found["history"] = loop.history.to_dict()
    found["counts"] = loop.state.steps_done, loop.state.updates_done
    return found


def differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Return the names of what is not equal, to the last bit."""
    assert one.keys() == other.keys()
    return [
        key
        for key, value in one.items()
        if not (
            torch.equal(value, other[key])
            if isinstance(value, torch.Tensor)
            else value == other[key]
        )
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"accumulate": 3, "clip_norm": 1.0},
        {"accumulate": 4, "amp": "fp16"},
        {"amp": "bf16"},
    ],
    ids=str,
)
def test_resumed_after_any_step_it_is_as_if_it_never_stopped(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    """Broken in each of several steps, in the middle of a window or not, the end is the same."""
    step, loop = make(tmp_path / "whole", **options)
    loop.fit(loader(), epochs=EPOCHS, validation_data=loader())
    whole = states(step, loop)
    for broken in (1, 2, 6, 7, 11, 20):
        folder = tmp_path / f"broken{broken}"
        _, loop = make(folder, **options)

        @loop.on("train_batch_begin", at=[broken])
        def fail() -> None:
            raise Interrupted

        with pytest.raises(Interrupted):
            loop.fit(loader(), epochs=EPOCHS, validation_data=loader())
        torch.manual_seed(99)
        step, loop = make(folder, **options)
        torch.manual_seed(99)
        loop.fit(loader(), epochs=EPOCHS, validation_data=loader(), resume=True)
        assert differing(states(step, loop), whole) == [], f"resumed after {broken} steps"


def test_stopped_in_the_middle_of_a_window_it_goes_on_there(tmp_path: Path) -> None:
    """A time limit may fall anywhere: the open window is saved with its gradients."""
    step, loop = make(tmp_path / "whole", accumulate=4)
    loop.fit(loader(), epochs=EPOCHS)
    whole = states(step, loop)
    step, loop = make(tmp_path / "parts", accumulate=4)
    loop.on("train_batch_end", at=[9])(lambda loop: loop.stop("time is up", final=False))
    loop.fit(loader(), epochs=EPOCHS)
    step, loop = make(tmp_path / "parts", accumulate=4)
    loop.fit(loader(), epochs=EPOCHS, resume="auto")
    assert differing(states(step, loop), whole) == []


SCHEDULERS: dict[str, Any] = {
    "milestones": lambda o: TorchScheduler(MultiStepLR(o, [1, 2])),
    "plateau": lambda o: TorchScheduler(
        ReduceLROnPlateau(o, patience=0, threshold=0.9), monitor="loss"
    ),
    "one cycle": lambda o: TorchScheduler(OneCycleLR(o, 0.1, EPOCHS * STEPS), by="step"),
    "sequence": lambda o: TorchScheduler(
        SequentialLR(o, [LinearLR(o, 0.1, total_iters=3), MultiStepLR(o, [5, 9])], [3]), by="update"
    ),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_torchs_schedulers_go_on_too(tmp_path: Path, name: str) -> None:
    """Each kind of scheduler has the same rates after a resume, and the same state."""

    def part(folder: Path, last: int, *, resume: bool) -> tuple[list[float], Any]:
        torch.manual_seed(3)
        model = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        loop = TorchStep(model, nn.CrossEntropyLoss(), optimizer).loop()
        loop.attach(Checkpoint(folder, steps=1, background=False))
        scheduler = SCHEDULERS[name](optimizer)
        loop.attach(scheduler)
        rates: list[float] = []
        loop.on("train_batch_end")(lambda logs: rates.append(logs["lr"]))
        loop.on("train_batch_end", at=[last])(lambda loop: loop.stop("time is up", final=False))
        loop.fit(loader(), epochs=EPOCHS, resume=resume)
        return rates, scheduler.state_dict()

    rates, state = part(tmp_path / "whole", 99, resume=False)
    first, _ = part(tmp_path / "parts", 9, resume=False)
    second, resumed = part(tmp_path / "parts", 99, resume=True)
    assert first + second == rates
    assert len(set(rates)) > 1
    assert resumed == state
