"""TorchStep: what it trains, what it sends, what it warns of."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
from torch import nn  # noqa: E402

from eventbus import Bus  # noqa: E402
from lifecycle import Loop, bus  # noqa: E402
from lifecycle.torch import Collected, TorchStep  # noqa: E402
from lifecycle.torch.batches import moved  # noqa: E402
from lifecycle.torch.losses import own_losses  # noqa: E402

Batches = list[tuple[Any, Any]]


def batches(count: int = 7, size: int = 8, seed: int = 0) -> Batches:
    generator = torch.Generator().manual_seed(seed)
    return [
        (
            torch.randn(size, 4, generator=generator),
            torch.randint(0, 3, (size,), generator=generator),
        )
        for _ in range(count)
    ]


def mlp() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))


def sgd(model: Any) -> Any:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def accuracy(outputs: Any, targets: Any) -> Any:
    return (outputs.argmax(1) == targets).float().mean()


def make(model: Any = None, **options: Any) -> Any:
    model = mlp() if model is None else model
    return TorchStep(model, nn.CrossEntropyLoss(), sgd(model), **options)


def same(one: Any, other: Any) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def by_hand(
    data: Batches,
    epochs: int,
    *,
    accumulate: int = 1,
    clip_norm: float | None = None,
    clip_value: float | None = None,
    amp: str | None = None,
) -> Any:
    """Train as anyone would write it, and return the model."""
    model = mlp()
    optimizer, criterion = sgd(model), nn.CrossEntropyLoss()
    for _ in range(epochs):
        for index, (inputs, targets) in enumerate(data):
            first = index - index % accumulate
            window = min(accumulate, len(data) - first)
            if index == first:
                optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=amp == "bf16"):
                loss = criterion(model(inputs), targets)
            (loss / window).backward()
            if index == first + window - 1:
                if clip_value is not None:
                    nn.utils.clip_grad_value_(model.parameters(), clip_value)
                if clip_norm is not None:
                    nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
                optimizer.step()
    return model


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"accumulate": 3},
        {"clip_norm": 0.1},
        {"clip_value": 0.01},
        {"amp": "bf16"},
        {"accumulate": 3, "clip_norm": 0.1, "amp": "bf16"},
    ],
    ids=str,
)
def test_trains_bit_for_bit_like_a_hand_written_loop(options: dict[str, Any]) -> None:
    """After three epochs the parameters equal those of a hand-written loop, to the last bit."""
    data = batches()
    step = make(**options)
    step.loop().fit(data, epochs=3, validation_data=data)
    assert same(step.model, by_hand(data, 3, **options))


def test_a_short_window_is_weighted_right_where_the_length_is_unknown() -> None:
    """Of a generator too, the last window of an epoch counts by its own length."""
    data = batches(7)
    step = make(accumulate=3)
    loop: Loop = step.loop()
    loop.fit(lambda epoch: iter(data), epochs=2, validation_data=data)
    assert loop.state.updates_done == 6
    other = by_hand(data, 2, accumulate=3).state_dict()
    for name, value in step.model.state_dict().items():
        torch.testing.assert_close(value, other[name])


def test_the_last_window_is_in_before_validation(trace: Callable[[Loop], Any]) -> None:
    """The validation of an epoch sees all its updates, also where the data's end was unknown."""
    for data in (batches(4), lambda epoch: iter(batches(4))):
        loop = make(accumulate=3).loop(bus=Bus(sender="loop"))
        sent = trace(loop)
        loop.fit(data, validation_data=batches(1))
        points = [p for p in sent.points if p in {"optimizer_step_end", "test_begin", "epoch_end"}]
        assert points == ["optimizer_step_end", "optimizer_step_end", "test_begin", "epoch_end"]


def test_a_validation_in_the_middle_of_a_window_leaves_it_open() -> None:
    """Validation by steps changes nothing about the training around it."""
    data = batches(6)
    step = make(accumulate=3)
    step.loop().fit(data, epochs=2, validation_data=data, validation_every_steps=2)
    plain = make(accumulate=3)
    plain.loop().fit(data, epochs=2)
    assert same(step.model, plain.model)


def test_max_steps_closes_the_last_window() -> None:
    """A run that ends by steps makes an update of what it has."""
    loop = make(accumulate=4).loop()
    loop.fit(batches(20), max_steps=10)
    assert loop.state.updates_done == 3


def test_a_skipped_batch_is_not_in_the_window() -> None:
    """A window goes on with the next batch where one is skipped; none is lost."""
    data = batches(6)
    step = make(accumulate=3)
    loop: Loop = step.loop()
    loop.on("train_batch_begin", at=[1])(lambda loop: loop.skip_batch())
    loop.fit(data)
    other = mlp()
    optimizer, criterion = sgd(other), nn.CrossEntropyLoss()
    for window in ([0, 2, 3], [4, 5]):
        optimizer.zero_grad()
        for index in window:
            (criterion(other(data[index][0]), data[index][1]) / len(window)).backward()
        optimizer.step()
    assert same(step.model, other)


def test_a_cut_epoch_closes_its_window() -> None:
    """stop_epoch in the middle of a window: what was gathered is applied, by its own weight."""
    data = batches(6)
    step = make(accumulate=4)
    loop: Loop = step.loop()
    loop.on("train_batch_end", at=[1])(lambda loop: loop.stop_epoch())
    loop.fit(data)
    other = mlp()
    optimizer, criterion = sgd(other), nn.CrossEntropyLoss()
    for inputs, targets in data[:2]:
        (criterion(other(inputs), targets) / 2).backward()
    optimizer.step()
    assert loop.state.updates_done == 1
    for one, two in zip(step.model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two)


def test_its_points_are_sent_in_order(trace: Callable[[Loop], Any]) -> None:
    """backward_end with each batch; the pair of the optimizer's step once a window."""
    loop = make(accumulate=2).loop()
    sent = trace(loop)
    loop.fit(batches(3))
    own = ("backward_end", "optimizer_step_begin", "optimizer_step_end", "train_batch_end")
    begin, end = own[1:3]
    assert [p for p in sent.points if p in own] == [
        *("backward_end", "train_batch_end", "backward_end", begin, end, "train_batch_end"),
        *("backward_end", begin, end, "train_batch_end"),
    ]
    assert [p["update"] for p in sent.of("optimizer_step_end")] == [0, 1]
    assert [p["step"] for p in sent.of("optimizer_step_end")] == [1, 2]
    assert [p["batch"] for p in sent.of("backward_end")] == [0, 1, 2]
    assert sent.of("optimizer_step_begin")[0]["optimizer"] is loop.objects["optimizer"]
    assert loop.state.update == 1
    assert loop.state.updates_done == 2


def test_gradients_can_be_changed_before_the_step() -> None:
    """What a subscriber does to the gradients at optimizer_step_begin is what is applied."""
    step = make()
    loop: Loop = step.loop()
    before = {name: value.clone() for name, value in step.model.named_parameters()}

    @loop.on("optimizer_step_begin")
    def silence() -> None:
        for parameter in step.model.parameters():
            parameter.grad.zero_()

    loop.fit(batches(2))
    assert all(torch.equal(before[name], value) for name, value in step.model.named_parameters())


def test_the_norm_is_in_the_logs() -> None:
    """With clip_norm, grad_norm is what it was before clipping, in batches that update."""
    loop = make(clip_norm=1e-3, accumulate=2).loop()
    seen: list[bool] = []
    loop.on("train_batch_end")(lambda logs: seen.append("grad_norm" in logs))
    history = loop.fit(batches(4))
    assert seen == [False, True, False, True]
    assert history["grad_norm"][0] > 1e-3


def test_learning_rates_are_in_the_logs_whoever_set_them() -> None:
    """Each group's rate in force is in every batch's logs; an epoch has its last one."""
    model = mlp()
    groups = [{"params": model[0].parameters(), "name": "stem"}, {"params": model[1:].parameters()}]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    loop = TorchStep(model, nn.CrossEntropyLoss(), optimizer).loop()
    seen: list[tuple[float, float]] = []
    loop.on("train_batch_end")(lambda logs: seen.append((logs["lr_stem"], logs["lr_1"])))

    @loop.on("train_batch_begin")
    def change(step: int) -> None:
        optimizer.param_groups[0]["lr"] = 0.1 / (step + 1)

    history = loop.fit(batches(3), epochs=2)
    assert seen == [(0.1 / (step + 1), 0.1) for step in range(6)]
    assert history["lr_stem"] == [0.1 / 3, 0.1 / 6]
    assert history["lr_1"] == [0.1, 0.1]


def test_several_optimizers_step_together(trace: Callable[[Loop], Any]) -> None:
    """Given by name they make one update together; the points carry all of them."""
    model = mlp()
    optimizers = {
        "stem": torch.optim.SGD(model[:2].parameters(), lr=0.1, momentum=0.9),
        "head": torch.optim.SGD(model[3].parameters(), lr=0.1, momentum=0.9),
    }
    step = TorchStep(model, nn.CrossEntropyLoss(), optimizers)
    loop: Loop = step.loop()
    sent = trace(loop)
    history = loop.fit(batches(), epochs=2)
    assert same(model, by_hand(batches(), 2))
    assert loop.state.updates_done == 14
    assert sorted(loop.objects) == ["model", "optimizer_head", "optimizer_stem"]
    assert set(sent.of("optimizer_step_end")[0]["optimizer"]) == {
        "optimizer_stem",
        "optimizer_head",
    }
    assert history["lr_optimizer_head"] == [0.1, 0.1]


def test_fp16_skips_and_counts_overflows(trace: Callable[[Loop], Any]) -> None:
    """An update whose gradients overflow is skipped, counted, and makes no update index."""
    step = make(amp="fp16")
    loop: Loop = step.loop()
    sent = trace(loop)

    @loop.on("backward_end", at=[1])
    def overflow() -> None:
        next(step.model.parameters()).grad[0] = float("inf")

    loop.fit(batches(4))
    assert [p["skipped"] for p in sent.of("optimizer_step_end")] == [False, True, False, False]
    assert [p["update"] for p in sent.of("optimizer_step_end")] == [0, 1, 1, 2]
    assert loop.state.updates_done == 3
    assert step.updates.skipped == 1


def test_a_run_in_which_all_overflows_warns() -> None:
    """If every update was skipped the run ends with a warning that says so."""
    step = make(amp="fp16")
    loop: Loop = step.loop()

    @loop.on("backward_end")
    def overflow() -> None:
        for parameter in step.model.parameters():
            parameter.grad.fill_(float("inf"))

    with pytest.warns(RuntimeWarning, match="without one optimizer step: 2 were skipped"):
        loop.fit(batches(2))


def test_a_run_without_an_optimizer_step_warns() -> None:
    """A loop whose own step never comes to the optimizer says so at its end."""
    step = make()
    loop = Loop(lambda batch: {"loss": 1.0}, objects=step.objects)
    loop.attach(step)
    with pytest.warns(RuntimeWarning, match="3 steps without one optimizer step: none was due"):
        loop.fit(batches(3))


def test_a_parameter_without_a_gradient_is_named() -> None:
    """A trainable parameter that the loss does not depend on is named after a few updates."""

    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.spare = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, inputs: Any) -> Any:
            return self.used(inputs)

    with pytest.warns(RuntimeWarning, match=r"without a gradient.*: spare\.weight, spare\.bias"):
        make(Half()).loop().fit(batches(5))
    with pytest.warns(RuntimeWarning, match=r"spare\.weight"):  # a run of fewer updates too
        make(Half()).loop().fit(batches(1))
    frozen = Half()
    frozen.spare.requires_grad_(False)
    make(frozen).loop().fit(batches(5))


def test_a_parameter_in_no_optimizer_is_named() -> None:
    """A trainable parameter that no optimizer holds is named when the run begins."""
    model = mlp()
    step = TorchStep(model, nn.CrossEntropyLoss(), sgd(model[3]))
    with pytest.warns(RuntimeWarning, match=r"in no optimizer: 0\.weight"):
        step.loop().fit(batches(1))


def test_modes_come_back_module_by_module() -> None:
    """Tests run in eval mode and inference mode; a frozen module stays frozen after them."""
    step = make()
    model = step.model
    model[1].eval()  # by hand: batch norm is to stand still
    seen: list[tuple[bool, bool]] = []
    model[3].register_forward_hook(
        lambda *_: seen.append((model.training, torch.is_inference_mode_enabled()))
    )
    loop: Loop = step.loop()
    loop.fit(batches(1), epochs=2, validation_data=batches(1))
    assert seen == [(True, False), (False, True)] * 2
    assert [each.training for each in model.modules()] == [True, True, False, True, True]
    loop.predict(batches(1))
    assert seen[-1] == (False, True)
    with pytest.raises(RuntimeError):
        loop.evaluate([(torch.zeros(1, 5), torch.zeros(1))])
    assert [each.training for each in model.modules()] == [True, True, False, True, True]


def test_an_evaluated_model_trains_again() -> None:
    """A model in eval mode is put into training mode when a run begins."""
    model = mlp().eval()
    make(model).loop().fit(batches(1))
    assert model.training


def test_predict_gives_outputs_of_inputs_or_pairs() -> None:
    """Predict takes batches of inputs and of inputs with targets."""
    step = make()
    loop: Loop = step.loop()
    data = batches(2)
    pairs = loop.predict(data)
    assert all(map(torch.equal, pairs, loop.predict([inputs for inputs, _ in data])))
    assert pairs[0].shape == (8, 3)


def test_metrics_of_batches_and_of_whole_sets() -> None:
    """A function is averaged over batches; a Collected sees all outputs of a set at once."""
    calls: list[int] = []

    def share(outputs: list[Any], targets: list[Any]) -> dict[str, Any]:
        calls.append(len(outputs))
        right = torch.cat(outputs).argmax(1) == torch.cat(targets)
        return {"right": right.float().mean(), "table": right}

    step = make(metrics={"accuracy": accuracy, "all": Collected(share)})
    loop: Loop = step.loop()
    data = batches(3)
    history = loop.fit(data, epochs=2, validation_data={"a": data, "b": data[:1]})
    assert calls == [3, 1, 3, 1]
    assert history["val_a_all_right"] == pytest.approx(history["val_a_accuracy"])
    assert history["val_b_all_right"] == pytest.approx(history["val_b_accuracy"])
    assert "val_a_all_table" not in history
    assert "all_right" not in history
    found = loop.evaluate(data)
    assert found["all_right"] == pytest.approx(found["accuracy"])


def test_torchmetrics_are_accepted() -> None:
    """A torchmetrics object is a metric of the whole set."""
    torchmetrics = pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")
    f1 = torchmetrics.classification.MulticlassF1Score(3)
    step = make(metrics={"f1": f1, "accuracy": accuracy})
    data = batches(3)
    found = step.loop().evaluate(data)
    outputs = step.loop().predict(data)
    whole = torchmetrics.classification.MulticlassF1Score(3)
    expected = whole(torch.cat(outputs), torch.cat([targets for _, targets in data]))
    assert found["f1"] == pytest.approx(float(expected))


def test_a_metric_that_is_none_is_refused() -> None:
    """Something that neither computes nor is called is refused by its name."""
    with pytest.raises(TypeError, match="metric 'accuracy'"):
        make(metrics={"accuracy": 3})


class Detector(nn.Module):
    """In training it returns losses, in evaluation predictions, as OpenMMLab's models do."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(4, 3)

    def forward(self, inputs: Any, targets: Any = None) -> Any:
        outputs = self.net(inputs)
        if not self.training:
            return outputs.argmax(1)
        loss = nn.functional.cross_entropy(outputs, targets)
        return {"loss_cls": loss, "loss_parts": [loss / 4, loss / 4], "lossless": loss.detach()}


def test_a_model_with_its_own_losses() -> None:
    """Without a loss the model's are summed and logged; in tests its predictions are judged."""
    model = Detector()

    def hit(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return (outputs == targets).float().mean()

    metrics = {"hit": Collected(lambda o, t: hit(torch.cat(o), torch.cat(t)))}
    step = TorchStep(model, None, sgd(model), metrics=metrics)
    data = batches(3)
    history = step.loop().fit(data, epochs=2, validation_data=data)
    assert history["loss"] == pytest.approx([1.5 * value for value in history["loss_cls"]])
    assert {"loss_parts", "lossless", "val_hit"} <= set(history.metrics)
    assert "val_loss" not in history
    named = [{"inputs": inputs, "targets": targets} for inputs, targets in data]
    other = Detector()
    other.load_state_dict(model.state_dict())
    twin = TorchStep(other, None, sgd(other))
    twin.loop().fit(named)
    step.loop().predict(data)


def test_a_model_without_a_loss_is_refused() -> None:
    """With loss=None a model that returns no loss in training is told of."""
    model = mlp()
    with pytest.raises(ValueError, match="Sequential has returned no loss"):
        TorchStep(model, None, sgd(model)).loop().fit([batches(1)[0][0]])


def test_what_counts_as_a_loss() -> None:
    """The word loss in a name counts, not the letters; one called loss is the whole."""
    one = torch.ones(())
    assert own_losses(one) == (one, {})
    assert own_losses(torch.ones(3)) is None
    assert own_losses({"boxes": torch.ones(3)}) is None
    found = own_losses({"loss": one, "loss_cls": 2 * one, "acc": one})
    assert found is not None
    assert found[0] == 1
    assert set(found[1]) == {"loss", "loss_cls", "acc"}
    found = own_losses({"s0.loss_cls": torch.ones(2), "aux_loss": one, "glossy": one})
    assert found is not None
    assert found[0] == 2


class Point(NamedTuple):
    x: Any
    label: str


def test_nested_batches_are_moved() -> None:
    """Tensors are moved in mappings, lists, tuples and named tuples; the rest stays."""
    tensor = torch.zeros(2)
    batch = {"a": [tensor, (tensor, 1)], "p": Point(tensor, "dog")}
    there = moved(batch, "meta")
    assert there["a"][0].device.type == there["a"][1][0].device.type == "meta"
    assert there["p"].x.device.type == "meta"
    assert there["p"].label == "dog"
    assert there["a"][1][1] == 1


def test_a_batch_that_is_no_pair_is_refused() -> None:
    """A batch of another form is refused with what to override, which then works."""
    data = [{"x": inputs, "y": targets} for inputs, targets in batches(2)]
    with pytest.raises(TypeError, match=r"not dict; override TorchStep\.split"):
        make().loop().fit(data)

    class Named(TorchStep):
        def split(self, batch: Any) -> tuple[Any, Any]:
            return batch["x"], batch["y"]

    model = mlp()
    Named(model, nn.CrossEntropyLoss(), sgd(model)).loop().fit(data)
    assert same(model, by_hand(batches(2), 1))


def test_it_trains_only_in_a_run() -> None:
    """Outside of its loop's run the train step says how to make one."""
    step = make()
    with pytest.raises(RuntimeError, match=r"step\.loop\(\)"):
        step.train(batches(1)[0])
    with pytest.raises(RuntimeError, match=r"loop\.attach\(step\)"):
        Loop(step.train).fit(batches(1))


def test_a_hand_written_loop_uses_it_too() -> None:
    """Its steps can be called from a loop that the user writes."""
    step = make(accumulate=3)
    data = batches()
    with step.loop() as loop:
        for _ in loop.epochs(3):
            for batch in loop.batches(data):
                loop.log(**step.train(batch))
            for batch in loop.batches(data, stage="test"):
                loop.log(**step.test(batch))
    assert same(step.model, by_hand(data, 3, accumulate=3))
    assert loop.history is not None
    assert loop.history["val_loss"][-1] < loop.history["val_loss"][0]


def test_a_compiled_model_keeps_its_names() -> None:
    """With compile the model is run compiled, and the objects are the plain ones."""
    step = make(compile={"backend": "eager"})
    step.loop().fit(batches(), epochs=3)
    assert step.objects["model"] is step.model
    expected = by_hand(batches(), 3).state_dict()
    for name, value in step.model.state_dict().items():
        torch.testing.assert_close(value, expected[name])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"amp": "fp8"}, ValueError, "amp must be"),
        ({"clip_norm": 0}, ValueError, "clip_norm must be above 0"),
        ({"clip_value": -1}, ValueError, "clip_value must be above 0"),
        ({"accumulate": 0}, ValueError, "accumulate is a number of batches"),
    ],
)
def test_wrong_options_are_told(options: Any, error: type[Exception], message: str) -> None:
    """An option that makes no sense is refused where it is given."""
    with pytest.raises(error, match=message):
        make(**options)


def test_wrong_parts_are_told() -> None:
    """A loss that cannot be called and an optimizer that is none are refused."""
    model = mlp()
    with pytest.raises(TypeError, match="loss must be a function"):
        TorchStep(model, "mse", sgd(model))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"must be a torch\.optim\.Optimizer"):
        TorchStep(model, nn.MSELoss(), model)
    with pytest.raises(ValueError, match="no optimizer"):
        TorchStep(model, nn.MSELoss(), [])


def test_unread_metrics_stay_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """With nobody reading, an epoch copies to the host once for each metric, not for each batch."""
    step = make(metrics={"accuracy": accuracy}, clip_norm=1.0)
    loop: Loop = step.loop(bus=Bus(sender="loop"))
    loop.fit(batches(2))
    calls: list[str] = []
    for name in ("item", "cpu", "numpy", "tolist", "__float__", "__bool__", "__int__"):
        plain = getattr(torch.Tensor, name)

        def counted(self: Any, *args: Any, name: str = name, plain: Any = plain) -> Any:
            calls.append(name)
            return plain(self, *args)

        monkeypatch.setattr(torch.Tensor, name, counted)
    loop.fit(batches(20), epochs=1)
    assert len(calls) == len(("loss", "accuracy", "grad_norm"))


def test_the_default_bus_is_its_own() -> None:
    """step.loop() sends on the default bus, or on the one that it is given."""
    assert make().loop().bus is bus
    own = Bus(sender="loop")
    assert make().loop(bus=own).bus is own


def test_nothing_is_warned_of_in_a_plain_run() -> None:
    """A run as it should be ends without a word."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(accumulate=2).loop().fit(batches(), epochs=2, validation_data=batches())


def test_a_checkpoint_holds_its_points_metrics(tmp_path: Path) -> None:
    """By epoch and by steps, what is saved at a point has that point's validation in it."""
    pytest.importorskip("safetensors", reason="safetensors is not installed")
    from lifecycle.checkpoint import Checkpoint, list_checkpoints, store

    def run(folder: Path, options: dict[str, Any], **fit: Any) -> list[dict[str, Any]]:
        loop = make(metrics={"accuracy": accuracy}).loop()
        loop.attach(Checkpoint(folder, keep=None, **options))  # before all that add to the logs
        loop.fit(batches(4), validation_data=batches(1), **fit)
        paths = [record.path for record in list_checkpoints(folder)]
        return [store.read(path)[1]["loop"]["logs"] for path in paths]

    by_epoch = run(tmp_path / "epochs", {}, epochs=2)
    assert all("val_accuracy" in logs for logs in by_epoch)
    by_step = run(tmp_path / "steps", {"steps": 2}, max_steps=8, validation_every_steps=2)
    assert len(by_step) == 5  # the last one at the end of the run
    assert all("val_accuracy" in logs for logs in by_step)
