"""The training step that most models have, and its test and predict steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.optim import Optimizer

from lifecycle.default import on
from lifecycle.loop import Loop
from lifecycle.subscribers.checks import whole
from lifecycle.subscribers.memory import OneLoop
from lifecycle.torch.batches import moved
from lifecycle.torch.losses import own_losses
from lifecycle.torch.metrics import Metrics
from lifecycle.torch.modes import Modes
from lifecycle.torch.rates import Rates
from lifecycle.torch.updates import Updates

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping
    from contextlib import AbstractContextManager

    from torch import nn

    from eventbus import Bus

__all__ = ["TorchStep"]

PRECISIONS = {None: None, "bf16": torch.bfloat16, "fp16": torch.float16}


class TorchStep(OneLoop):
    """A train, a test and a predict step for a model, as callables of the batch.

    ``step.loop()`` makes the loop that runs them. In a run it sends ``backward_end``,
    ``optimizer_step_begin`` and ``optimizer_step_end``, counts ``loop.state.updates_done``,
    and has the learning rates in every batch's logs. Tests and predictions run in ``eval()``
    and inference mode; afterwards each module is back in the mode it was in. A model in
    ``eval()`` is put into training mode when a run begins; one that trains is left as it is,
    with whatever modules you have frozen.

    Args:
        model: what is trained.
        loss: a function of outputs and targets that returns a tensor of one element. None for
            a model that returns its own losses in training, as a mapping (see
            `own_losses`), and predictions in ``eval()``.
        optimizer: one, or several as a sequence or by name, which step together.
        metrics: by name; functions of outputs and targets, averaged over batches, and objects
            with update, compute and reset (such as torchmetrics', or a `Collected`), computed
            over each whole set of test data. Without a loss, all are for test data alone.
        clip_norm: clip the norm of all gradients together, and log it as ``grad_norm``.
        clip_value: clip each gradient's values.
        accumulate: make an optimizer step after so many batches. The last window of an epoch
            may be shorter, and is weighted by its own length.
        amp: ``bf16`` or ``fp16`` for automatic mixed precision, fp16 with a loss scaler.
        compile: whether to run the model through ``torch.compile``; or the options for it.
        device: where to move the model and the batches; where the model is, by default.

    Raises:
        TypeError: an argument is of the wrong kind.
        ValueError: an argument's value makes no sense.
    """

    name = "TorchStep"

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[[Any, Any], torch.Tensor] | None,
        optimizer: Optimizer | Sequence[Optimizer] | Mapping[str, Optimizer],
        *,
        metrics: Mapping[str, Any] | None = None,
        clip_norm: float | None = None,
        clip_value: float | None = None,
        accumulate: int = 1,
        amp: Literal["bf16", "fp16"] | None = None,
        compile: bool | Mapping[str, Any] = False,  # noqa: A002 -- torch's own name for it
        device: torch.device | str | None = None,
    ) -> None:
        if amp not in PRECISIONS:
            raise ValueError(f'amp must be "bf16", "fp16" or None, not {amp!r}')
        if loss is not None and not callable(loss):
            raise TypeError(f"loss must be a function of outputs and targets, not {loss!r}")
        _check_positive(clip_norm=clip_norm, clip_value=clip_value)
        self.model = model if device is None else model.to(device)
        first = next(model.parameters(), None)
        self.device = torch.device("cpu") if first is None else first.device
        self.loss = loss
        self.optimizers = _named(optimizer)
        self.metrics = Metrics(metrics)
        self.precision = PRECISIONS[amp]
        self.forward: Callable[..., Any] = model
        if compile is not False:
            options = {} if compile is True else dict(compile)
            self.forward = torch.compile(model, **options)
        self.updates = Updates(
            model,
            self.optimizers,
            accumulate=whole(accumulate, 1, "accumulate is a number of batches"),
            clip_norm=clip_norm,
            clip_value=clip_value,
            scaler=torch.amp.GradScaler(self.device.type) if amp == "fp16" else None,
        )
        self.rates = Rates(self.optimizers)
        self._rates: dict[str, Any] = {}
        self._modes = Modes(model)
        self._judge = self._judge_own if loss is None else self._judge_outputs

    def __repr__(self) -> str:
        return f"<TorchStep {type(self.model).__name__} on {self.device}>"

    @property
    def objects(self) -> dict[str, Any]:
        """The model and the optimizer, or optimizers, by name: what a checkpoint saves."""
        return {"model": self.model, **self.optimizers}

    def loop(self, *, objects: Mapping[str, Any] | None = None, bus: Bus | None = None) -> Loop:
        """Return a loop that runs these steps.

        Args:
            objects: what else belongs to the run, by name.
            bus: where its points are sent; the default bus unless given.
        """
        objects = {**self.objects, **(objects or {})}
        loop = Loop(self.train, self.test, self.predict, objects=objects, bus=bus)
        loop.attach(self)
        return loop

    # -- the steps

    def train(self, batch: Any) -> dict[str, Any]:
        """Learn from a batch, and return its loss, metrics and learning rates.

        Raises:
            RuntimeError: no run of a loop that this step is attached to is under way.
            ValueError: the model has returned no loss.
        """
        updates = self.updates
        if updates.loop is None:
            raise RuntimeError(
                "this step trains in a run of its loop: make that with step.loop(), or"
                " loop.attach(step)"
            )
        updates.open()
        loss, logs, outputs, targets = self._run(batch)
        if loss is None:
            raise ValueError(
                f"{type(self.model).__name__} has returned no loss: loss=None is for models that"
                " return a mapping with losses in it when they train"
            )
        if self.loss is not None:  # otherwise the outputs are losses
            self.metrics.of_batch(outputs, targets, logs)
        self._rates = self.rates.read()
        logs.update(self._rates)
        norm = updates.backward(loss)
        if norm is not None:
            logs["grad_norm"] = norm
        return logs

    def test(self, batch: Any) -> dict[str, Any]:
        """Return the loss and metrics of a batch, without learning from it."""
        with torch.inference_mode():
            _, logs, outputs, targets = self._run(batch)
            self.metrics.of_batch(outputs, targets, logs)
            self.metrics.update(outputs, targets)
        return logs

    def predict(self, batch: Any) -> Any:
        """Return the model's outputs for a batch: of inputs, or of inputs and targets."""
        with torch.inference_mode(), self._autocast():
            batch = self._placed(batch)
            if self.loss is None:
                return self._call(batch)
            paired = isinstance(batch, list | tuple)
            return self.forward(self.split(batch)[0] if paired else batch)

    def split(self, batch: Any) -> tuple[Any, Any]:
        """Return the inputs and the targets in a batch. Override it for batches of other forms.

        Raises:
            TypeError: the batch is no pair.
        """
        if isinstance(batch, list | tuple) and len(batch) == 2:  # noqa: PLR2004 -- a pair
            return batch[0], batch[1]
        raise TypeError(
            f"a batch must be a pair of inputs and targets, not {type(batch).__name__}; override"
            " TorchStep.split to tell what is what in it"
        )

    def _run(self, batch: Any) -> tuple[torch.Tensor | None, dict[str, Any], Any, Any]:
        """Return the loss, the logs to begin with, the outputs and the targets."""
        if self.device.type != "cpu":
            batch = moved(batch, self.device)
        if self.precision is None:
            return self._judge(batch)
        with self._autocast():
            return self._judge(batch)

    def _judge_outputs(self, batch: Any) -> tuple[torch.Tensor, dict[str, Any], Any, Any]:
        inputs, targets = self.split(batch)
        outputs = self.forward(inputs)
        assert self.loss is not None
        loss = self.loss(outputs, targets)
        return loss, {"loss": loss.detach()}, outputs, targets

    def _judge_own(self, batch: Any) -> tuple[torch.Tensor | None, dict[str, Any], Any, Any]:
        outputs = self._call(batch)
        targets = batch[-1] if isinstance(batch, list | tuple) else batch
        found = own_losses(outputs)
        if found is None:
            return None, {}, outputs, targets
        loss, logs = found
        return loss, {key: value.detach() for key, value in logs.items()}, outputs, targets

    def _call(self, batch: Any) -> Any:
        """Call a model that takes the batch apart by its own signature."""
        if isinstance(batch, Mapping):
            return self.forward(**batch)
        return self.forward(*batch) if isinstance(batch, list | tuple) else self.forward(batch)

    def _placed(self, batch: Any) -> Any:
        return batch if self.device.type == "cpu" else moved(batch, self.device)

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.precision is None:
            return nullcontext()
        return torch.autocast(self.device.type, self.precision)

    # -- the run around them

    @on("train_begin", priority="HIGHEST")
    def _run_begins(self, loop: Loop) -> None:
        self.follow(loop)
        if not self.model.training:
            self.model.train()
        self.updates.begin(loop)
        self._rates = {}

    @on("train_end", priority="LOWEST")
    def _run_ends(self, outcome: str) -> None:
        self.updates.end(outcome)

    @on("epoch_begin", priority="HIGHEST")
    def _epoch_begins(self) -> None:
        self.rates.update()

    @on("epoch_end", priority="HIGHEST")
    def _epoch_ends(self, loop: Loop, logs: MutableMapping[str, Any]) -> None:
        if not loop.state.open:  # otherwise a resumed run goes on in this window
            self.updates.flush()
        logs.update(self._rates)  # an epoch's rates are its last, not a mean

    @on("test_begin", "predict_begin", priority="HIGHEST")
    def _pass_begins(self, loop: Loop) -> None:
        if self.updates.loop is loop and loop.state.train.over:  # type: ignore[union-attr]
            self.updates.flush()  # nothing more comes into the window
        self.metrics.reset()
        self._modes.enter()

    @on("test_end", priority="HIGHEST")
    def _test_ends(self, logs: MutableMapping[str, Any], outcome: str) -> None:
        if outcome != "failed":
            self.metrics.compute(logs)

    @on("test_end", "predict_end", priority="LOWEST")
    def _pass_ends(self) -> None:
        self._modes.leave()

    # -- going on later

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint saves beside the objects: the open window, the scaler."""
        return {**self.updates.state_dict(), "rates": self._rates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        self.updates.load_state_dict(state)
        self._rates = dict(state["rates"])


def _named(optimizer: Any) -> dict[str, Optimizer]:
    """Return optimizers by name.

    Raises:
        TypeError: one is not an optimizer.
        ValueError: there is none.
    """
    if isinstance(optimizer, Mapping):
        named = {f"optimizer_{name}": each for name, each in optimizer.items()}
    elif isinstance(optimizer, list | tuple):
        named = {f"optimizer_{number}": each for number, each in enumerate(optimizer)}
    else:
        named = {"optimizer": optimizer}
    if not named:
        raise ValueError("there is no optimizer: nothing would ever change the model")
    for each in named.values():
        if not isinstance(each, Optimizer):
            raise TypeError(f"an optimizer must be a torch.optim.Optimizer, not {each!r}")
    return named


def _check_positive(**limits: float | None) -> None:
    for name, limit in limits.items():
        if limit is not None and not limit > 0:
            raise ValueError(f"{name} must be above 0, not {limit!r}")
