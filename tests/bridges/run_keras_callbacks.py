"""Keras's own callbacks in fit and on our loop, from the same seed; prints what each has left."""

from __future__ import annotations

import contextlib
import http.server
import json
import socketserver
import tempfile
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

warnings.simplefilter("ignore")

import keras
import numpy as np

from lifecycle import Loop
from lifecycle.bridges.keras import use

callbacks = keras.callbacks
random = np.random.default_rng(0)
INPUTS = random.normal(size=(48, 4)).astype("float32")
TARGETS = INPUTS.sum(axis=1, keepdims=True) + random.normal(size=(48, 1)).astype("float32")
TRAIN, TEST = (INPUTS[:32], TARGETS[:32]), (INPUTS[32:], TARGETS[32:])
EPOCHS = 6

Make = Callable[[Path], list[Any]]


def compiled(ema: bool = False, rate: float = 0.05) -> Any:
    keras.utils.set_random_seed(7)
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)]
    )
    optimizer = keras.optimizers.SGD(rate, momentum=0.9, use_ema=ema, ema_momentum=0.9)
    model.compile(optimizer, "mse", metrics=["mae"])
    return model


def in_fit(model: Any, made: list[Any], epochs: int = EPOCHS) -> Any:
    model.fit(
        *TRAIN,
        batch_size=8,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        validation_data=TEST,
        validation_batch_size=8,
        callbacks=made,
    )


def batches(data: tuple[Any, Any]) -> list[tuple[Any, Any]]:
    return [(data[0][i : i + 8], data[1][i : i + 8]) for i in range(0, len(data[0]), 8)]


def on_our_loop(model: Any, made: list[Any], epochs: int = EPOCHS) -> None:
    def train_step(batch: tuple[Any, Any]) -> Any:
        model.reset_metrics()
        return model.train_on_batch(*batch, return_dict=True)

    def test_step(batch: tuple[Any, Any]) -> Any:
        model.reset_metrics()
        return model.test_on_batch(*batch, return_dict=True)

    loop = Loop(train_step, test_step, objects={"model": model})
    use(loop, made)
    loop.fit(batches(TRAIN), epochs=epochs, validation_data=batches(TEST))
    if model.optimizer.use_ema:
        model.optimizer.finalize_variable_values(model.trainable_variables)


class Seen(keras.callbacks.Callback):  # type: ignore[misc]
    """Counts, and keeps the logs of each epoch; overrides the older batch name."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[Any] = []
        self.epochs: list[Any] = []
        self.rates: list[float] = []

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        self.batches.append([batch, dict(logs)])

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.epochs.append([epoch, dict(logs)])
        self.rates.append(float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)))


class Sink(http.server.BaseHTTPRequestHandler):
    """A server that keeps what it is sent."""

    got: list[str] = []

    def do_POST(self) -> None:
        self.got.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


class Lambdas:
    seen: list[Any] = []


def kinds(server: str) -> dict[str, Make]:
    k = callbacks
    return {
        "EarlyStopping": lambda _: [
            k.EarlyStopping("val_loss", patience=1, restore_best_weights=True, min_delta=0.05)
        ],
        "ModelCheckpoint": lambda folder: [
            k.ModelCheckpoint(
                str(folder / "{epoch:02d}-{val_loss:.3f}.weights.h5"),
                save_best_only=True,
                save_weights_only=True,
            ),
            k.ModelCheckpoint(str(folder / "b{batch:02d}.keras"), save_freq=16),
        ],
        "ReduceLROnPlateau": lambda _: [k.ReduceLROnPlateau(patience=1, min_delta=0.2, factor=0.5)],
        "LearningRateScheduler": lambda _: [
            k.LearningRateScheduler(lambda epoch, rate: rate * 0.8)
        ],
        "CSVLogger": lambda folder: [k.CSVLogger(str(folder / "log.csv"))],
        "TensorBoard": lambda folder: [k.TensorBoard(str(folder / "tb"), write_graph=False)],
        "TerminateOnNaN": lambda _: [k.TerminateOnNaN()],
        "LambdaCallback": lambda _: [
            k.LambdaCallback(
                on_epoch_end=lambda epoch, logs: Lambdas.seen.append(epoch),
                on_train_batch_end=lambda batch, logs: Lambdas.seen.append([batch, logs["loss"]]),
                on_train_end=lambda logs: Lambdas.seen.append("end"),
            )
        ],
        "History": lambda _: [k.History()],
        "ProgbarLogger": lambda _: [k.ProgbarLogger()],
        "SwapEMAWeights": lambda _: [k.SwapEMAWeights(swap_on_epoch=True)],
        "BackupAndRestore": lambda folder: [k.BackupAndRestore(str(folder / "backup"))],
        "RemoteMonitor": lambda _: [k.RemoteMonitor(root=server, send_as_json=True)],
    }


def contents(folder: Path) -> dict[str, Any]:
    """Read the files that were left: weights as numbers, text as text."""
    found: dict[str, Any] = {}
    for file in sorted(folder.rglob("*")):
        name = str(file.relative_to(folder))
        if name.endswith(".weights.h5"):
            model = compiled()
            model.load_weights(file)
            found[name] = numbers(model)
        elif name.endswith(".keras"):
            found[name] = numbers(keras.models.load_model(file))
        elif name.endswith(".csv"):
            lines = file.read_text().splitlines()
            found[name] = [[_number(cell) for cell in line.split(",")] for line in lines]
        elif "tfevents" in name:
            found[f"{file.parent.name} events"] = scalars(file)
    return found


def scalars(file: Path) -> Any:
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.util.tensor_util import make_ndarray

    return [
        [value.tag, event.step, float(make_ndarray(value.tensor))]
        for event in EventFileLoader(str(file)).Load()
        for value in event.summary.value
        if value.HasField("tensor") and not value.tensor.string_val
    ]


def _number(cell: str) -> Any:
    try:
        return float(cell)
    except ValueError:
        return cell


def numbers(model: Any) -> list[Any]:
    return [np.asarray(weights).tolist() for weights in model.get_weights()]


def left(run: Callable[..., Any], name: str, make: Make, server: str) -> dict[str, Any]:
    """Run with one kind of callback and return what it has left."""
    Lambdas.seen, Sink.got = [], []
    with tempfile.TemporaryDirectory() as path:
        folder, seen = Path(path), Seen()
        model = compiled(
            ema=name == "SwapEMAWeights", rate=50.0 if name == "TerminateOnNaN" else 0.05
        )
        made = make(folder)
        run(model, [*made, seen])
        state = {
            key: value
            for key, value in vars(made[0]).items()
            if isinstance(value, int | float) and key not in ("verbose", "_time_at_start")
        }
        return {
            "weights": numbers(model),
            "epochs": seen.epochs,
            "batches": seen.batches,
            "rates": seen.rates,
            "files": contents(folder),
            "state": state,
            "history": getattr(made[0], "history", None) if name == "History" else None,
            "lambdas": Lambdas.seen,
            "sent": [{k: float(v) for k, v in json.loads(text).items()} for text in Sink.got],
        }


def resumed(run: Callable[..., Any]) -> dict[str, Any]:
    """Fail in the fifth epoch, then go on with BackupAndRestore."""

    class Crash(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch == 4:
                raise ZeroDivisionError

    with tempfile.TemporaryDirectory() as path:
        with contextlib.suppress(ZeroDivisionError):
            run(compiled(), [callbacks.BackupAndRestore(path + "/b"), Crash()])
        seen, model = Seen(), compiled()
        run(model, [callbacks.BackupAndRestore(path + "/b"), seen])
        return {"epochs": [epoch for epoch, _ in seen.epochs], "weights": numbers(model)}


def main() -> None:
    # not an HTTPServer, which looks up the host's name
    server = socketserver.TCPServer(("127.0.0.1", 0), Sink)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    found: dict[str, Any] = {}
    for name, make in kinds(address).items():
        pair = []
        for run in (in_fit, on_our_loop):
            try:
                pair.append(left(run, name, make, address))
            except ImportError as error:
                pair.append({"missing": str(error)})
        found[name] = pair
    found["resumed"] = [resumed(in_fit), resumed(on_our_loop)]
    print("\n" + json.dumps(found))


if __name__ == "__main__":
    main()
