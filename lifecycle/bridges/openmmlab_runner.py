"""The runner that OpenMMLab hooks see on our loop: what hooks use, in mmengine and in mmcv."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lifecycle.loop import Loop

__all__ = ["LogBuffer", "LoopView", "RunnerFacade"]

GIVEN = frozenset({
    "model", "optimizer", "param_schedulers", "work_dir", "train_dataloader", "val_dataloader",
    "test_dataloader", "meta", "cfg", "seed", "experiment_name", "logger", "visualizer",
    "log_processor",
})  # fmt: skip
"""What ``use(loop, hooks, ...)`` may be given for the hooks."""


class LogBuffer:
    """mmcv's buffer of what was logged: the history of each value, and their averages."""

    def __init__(self) -> None:
        self.val_history: dict[str, list[Any]] = {}
        self.n_history: dict[str, list[float]] = {}
        self.output: dict[str, Any] = {}
        self.ready = False

    def update(self, values: Mapping[str, Any], count: float = 1) -> None:
        """Add values that are means over so many samples."""
        for key, value in values.items():
            self.val_history.setdefault(key, []).append(value)
            self.n_history.setdefault(key, []).append(count)

    def average(self, n: int = 0) -> None:
        """Put the weighted averages of the last ``n`` values, all by default, into ``output``."""
        for key, values in self.val_history.items():
            weights = self.n_history[key][-n:]
            total = sum(float(v) * w for v, w in zip(values[-n:], weights, strict=True))
            self.output[key] = total / sum(weights)
        self.ready = True

    def clear(self) -> None:
        """Forget all."""
        self.val_history.clear()
        self.n_history.clear()
        self.clear_output()

    def clear_output(self) -> None:
        """Forget the averages."""
        self.output.clear()
        self.ready = False


class Data:
    """Data that hooks ask for its length and its data set."""

    def __init__(self, data: Any, length: int | None = None) -> None:
        self.data, self.length = data, length
        self.dataset = getattr(data, "dataset", data)

    def __len__(self) -> int:
        return len(self.data) if self.length is None else self.length

    def __iter__(self) -> Iterator[Any]:
        return iter(self.data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.data, name)


class LoopView:
    """What hooks see as ``runner.train_loop``, ``val_loop`` and ``test_loop``."""

    def __init__(self, runner: RunnerFacade, kind: str) -> None:
        self._runner, self._kind = runner, kind

    @property
    def dataloader(self) -> Any:
        """The data."""
        return getattr(self._runner, f"{self._kind}_dataloader")

    @property
    def stop_training(self) -> bool:
        """Whether the run was asked to stop; setting it asks."""
        return self._runner.loop.state.stopping

    @stop_training.setter
    def stop_training(self, value: bool) -> None:
        if value:
            self._runner.loop.stop(f"{self._runner.calling} set train_loop.stop_training")

    @property
    def max_epochs(self) -> int:
        """The index after the last epoch."""
        return self._runner.max_epochs

    @property
    def max_iters(self) -> int:
        """The steps of the whole run."""
        return self._runner.max_iters

    @property
    def epoch(self) -> int:
        """The epochs done."""
        return self._runner.epoch

    @property
    def iter(self) -> int:
        """The steps done."""
        return self._runner.iter


class RunnerFacade:
    """Stands for mmengine's or mmcv's runner; one for all hooks of a loop."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.calling = "a hook"
        """The hook whose turn it is."""
        self.given: dict[str, Any] = {}
        """What ``use`` was given."""
        self.hooks: list[Any] = []
        """The hooks in the order of their priorities."""
        self.epoch = 0
        """The epoch under way; after ``after_train_epoch`` the one to come, as in mmengine."""
        self.outputs: Any = None
        """What the last step has returned."""
        self.steps: dict[str, int | None] = {}
        """The length of the pass under way, where no data was given."""
        self.log_buffer = LogBuffer()
        self.mode = "train"
        self.rank, self.world_size = 0, 1
        self.train_loop, self.val_loop, self.test_loop = (
            LoopView(self, kind) for kind in ("train", "val", "test")
        )
        self.timestamp = time.strftime("%Y%m%d_%H%M%S")
        self._made: dict[str, Any] = {}
        """What was made because a hook asked for it."""

    # -- where the run is

    def _ending(self) -> bool:
        return getattr(self.loop.state.train, "point", None) == "end"

    @property
    def iter(self) -> int:
        """The step under way; between steps the one to come."""
        return self.loop.state.steps_done - self._ending()

    @property
    def inner_iter(self) -> int:
        """The batch under way within the epoch."""
        return self.loop.state.batches_done - self._ending()

    @property
    def max_epochs(self) -> int:
        """The index after the last epoch."""
        return self._known(self.loop.state.epochs, "max_epochs", "epochs")

    @property
    def max_iters(self) -> int:
        """The steps of the whole run."""
        return self._known(self.loop.state.total_steps, "max_iters", "steps_per_epoch")

    def _known(self, value: int | None, name: str, argument: str) -> int:
        if value is None:
            raise AttributeError(
                f"{self.calling} asks for runner.{name}, but how long the run will be is not"
                f" known: give loop.fit {argument}=..., or data with a length"
            )
        return value

    # -- what belongs to the run

    @property
    def model(self) -> Any:
        """The model."""
        return self._object("model")

    @property
    def optimizer(self) -> Any:
        """The torch optimizer."""
        found = self._object("optimizer")
        return getattr(found, "optimizer", found)

    def _object(self, name: str) -> Any:
        found = self.given.get(name, self.loop.objects.get(name))
        if found is None:
            raise AttributeError(
                f"{self.calling} asks for runner.{name}, but the loop has none: give it one, as"
                f" in Loop(objects={{{name!r}: ...}}) or use(loop, hooks, {name}=...)"
            )
        return found

    @property
    def optim_wrapper(self) -> Any:
        """The optimizer in mmengine's wrapper, which is made where there is none."""
        found = self._object("optimizer")
        if hasattr(found, "update_params"):
            return found
        if self._made.get("wraps") is not found:
            from mmengine.optim import OptimWrapper  # noqa: PLC0415 -- its hooks alone ask for it

            self._made |= {"wraps": found, "wrapper": OptimWrapper(found)}
        return self._made["wrapper"]

    @property
    def param_schedulers(self) -> Any:
        """The schedulers, None where there are none."""
        return self.given.get("param_schedulers", self.loop.objects.get("param_schedulers"))

    def current_lr(self) -> list[float]:
        """Return the learning rate of each parameter group."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def current_momentum(self) -> list[float]:
        """Return the momentum of each parameter group."""
        groups = self.optimizer.param_groups
        return [g["momentum"] if "momentum" in g else g.get("betas", (0,))[0] for g in groups]

    # -- data

    @property
    def data_loader(self) -> Any:
        """The data of the pass under way."""
        return getattr(self, f"{self.mode}_dataloader")

    @property
    def train_dataloader(self) -> Any:
        """The training data."""
        position = self.loop.position
        feed = position.feed if position is not None else None
        return self._data("train", feed.data if feed is not None else None)

    @property
    def val_dataloader(self) -> Any:
        """The validation data; as far as its length goes, where none was given."""
        return self._data("val", None)

    @property
    def test_dataloader(self) -> Any:
        """The test data; as far as its length goes, where none was given."""
        return self._data("test", None)

    def _data(self, kind: str, found: Any) -> Any:
        data = self.given.get(f"{kind}_dataloader", found)
        if hasattr(data, "dataset"):
            return data
        state = self.loop.state
        return Data(data, state.steps_per_epoch if kind == "train" else self.steps.get(kind))

    # -- what is written, and where

    @property
    def work_dir(self) -> str:
        """The folder of the run."""
        if "work_dir" not in self.given:
            raise AttributeError(
                f"{self.calling} asks for runner.work_dir: say where, as in"
                " use(loop, hooks, work_dir='work_dirs/run')"
            )
        return str(self.given["work_dir"])

    @property
    def log_dir(self) -> str:
        """The folder of this start of the run."""
        return str(Path(self.work_dir) / self.timestamp)

    _log_dir = log_dir

    @property
    def experiment_name(self) -> str:
        """The run's name."""
        name = self.given.get("experiment_name")
        return name or f"{Path(self.given.get('work_dir', 'run')).name}_{self.timestamp}"

    @property
    def logger(self) -> logging.Logger:
        """Where hooks write."""
        found: logging.Logger = self.given.get("logger") or logging.getLogger("lifecycle.openmmlab")
        return found

    @property
    def meta(self) -> dict[str, Any]:
        """What mmcv's hooks keep with the checkpoints."""
        made: dict[str, Any] = self.given.setdefault("meta", {})
        made.setdefault("hook_msgs", {})
        return made

    @property
    def seed(self) -> int | None:
        """The seed, if one was given."""
        seed: int | None = self.given.get("seed")
        return seed

    @property
    def cfg(self) -> Any:
        """The configuration, if one was given."""
        return self.given.get("cfg") or SimpleNamespace(
            pretty_text="", get=lambda _, other=None: other
        )

    @property
    def message_hub(self) -> Any:
        """mmengine's MessageHub of this run."""
        if "message_hub" not in self._made:
            from mmengine.logging import MessageHub  # noqa: PLC0415 -- its hooks alone ask for it

            self._made["message_hub"] = MessageHub(f"{self.experiment_name}_{id(self)}")
        return self._made["message_hub"]

    @property
    def visualizer(self) -> Any:
        """mmengine's Visualizer, which writes files into ``log_dir``, unless one was given."""
        if "visualizer" in self.given:
            return self.given["visualizer"]
        if "visualizer" not in self._made:
            from mmengine.visualization import LocalVisBackend, Visualizer  # noqa: PLC0415

            backend = LocalVisBackend(str(Path(self.log_dir) / "vis_data"))
            self._made["visualizer"] = Visualizer(vis_backends=[backend])
        return self._made["visualizer"]

    @property
    def log_processor(self) -> Any:
        """mmengine's LogProcessor, unless one was given."""
        if "log_processor" in self.given:
            return self.given["log_processor"]
        if "log_processor" not in self._made:
            from mmengine.runner import LogProcessor  # noqa: PLC0415

            self._made["log_processor"] = LogProcessor()
        return self._made["log_processor"]

    _train_loop = property(lambda self: self.train_loop)
    _resume = False

    # -- what hooks call

    def call_hook(self, stage: str, **values: Any) -> None:
        """Call a method of all hooks that have it."""
        for hook in self.hooks:
            method = getattr(hook, stage, None)
            if method is not None:
                method(self, **values)

    def save_checkpoint(  # mmengine's and mmcv's arguments
        self,
        out_dir: str,
        filename: str | None = None,
        file_client_args: Any = None,
        save_optimizer: bool = True,  # noqa: FBT002
        save_param_scheduler: bool = True,  # noqa: FBT002
        meta: Mapping[str, Any] | None = None,
        by_epoch: bool = True,  # noqa: FBT002
        backend_args: Any = None,
        filename_tmpl: str = "epoch_{}.pth",
        create_symlink: bool = True,  # noqa: FBT002
    ) -> None:
        """Save a checkpoint file with what mmengine's or mmcv's holds.

        Raises:
            ValueError: it should go elsewhere than onto a local disk.
        """
        if file_client_args or backend_args:
            raise ValueError("on this loop hooks save to local disks; leave out backend_args")
        import torch  # noqa: PLC0415 -- the model is torch's

        about: dict[str, Any] = {"epoch": self.epoch + by_epoch, "iter": self.iter + (not by_epoch)}
        about |= dict(meta or self.given.get("meta") or {})
        about |= {"seed": self.seed, "experiment_name": self.experiment_name}
        model = getattr(self.model, "module", self.model)
        checkpoint: dict[str, Any] = {"meta": about, "state_dict": _on_cpu(model.state_dict())}
        if "message_hub" in self._made:
            checkpoint["message_hub"] = self.message_hub.state_dict()
        if save_optimizer:
            checkpoint["optimizer"] = self._object("optimizer").state_dict()
        if save_param_scheduler and self.param_schedulers:
            checkpoint["param_schedulers"] = [s.state_dict() for s in self.param_schedulers]
        self.call_hook("before_save_checkpoint", checkpoint=checkpoint)
        path = Path(out_dir) / (filename or filename_tmpl.format(self.epoch + 1))
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(checkpoint, path)
        if filename is None and create_symlink:
            latest = path.with_name("latest.pth")
            latest.unlink(missing_ok=True)
            latest.symlink_to(path.name)

    def __getattr__(self, name: str) -> Any:
        own = getattr(type(self), name, None)
        if isinstance(own, property) and own.fget is not None:
            return own.fget(self)  # which has refused, in words of its own
        raise AttributeError(
            f"{self.calling} asks for runner.{name}, which is not to be had on this loop;"
            f" subscribers reach the run through `loop` (loop.state, loop.objects, loop.log), and"
            f" use(loop, hooks, ...) takes {', '.join(sorted(GIVEN))}"
        )


def _on_cpu(state: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value.cpu() if hasattr(value, "cpu") else value for key, value in state.items()}
