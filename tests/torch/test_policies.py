"""Every policy against its closed form, and against torch and mmengine where they have it."""

from __future__ import annotations

import importlib.util
import math
import warnings
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, Literal, cast

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed")

from lifecycle import Loop  # noqa: E402
from lifecycle.torch import (  # noqa: E402
    Chain,
    Cosine,
    CosineRestart,
    Cyclic,
    Exp,
    Fixed,
    FlatCosine,
    Inv,
    Linear,
    LRSchedule,
    MomentumSchedule,
    OneCycle,
    Poly,
    Step,
    WarmUp,
)

EPOCHS, STEPS = 3, 7
BASE = 0.4
Form = Callable[[float, int, int], float]


def cosine(start: float, end: float, share: float) -> float:
    return end + 0.5 * (start - end) * (math.cos(math.pi * share) + 1)


def cyclic(base: float, index: int, total: int, gamma: float = 1.0) -> float:
    length = total // 2
    rise, cycle, at = int(0.4 * length), index // length, index % length
    peak = 1 - gamma**cycle + 10 * gamma**cycle
    if at < rise:
        return cosine(base, base * peak, at / rise)
    return cosine(base * peak, base * 1e-4, (at - rise) / (length - rise))


def one_cycle(base: float, index: int, total: int) -> float:
    low, rise = base / 25, 0.3 * total - 1
    if index <= rise:
        return cosine(low, base, index / (rise or 1))
    return cosine(base, low / 1e4, (index - rise) / (total - 1 - rise))


def restart(base: float, index: int, _: int) -> float:
    if index < 2:
        return cosine(base, 0.01, index / 2)
    return 0.01 + 0.5 * 0.5 * (base - 0.01) * (math.cos(math.pi * min((index - 2) / 5, 1)) + 1)


def flat(base: float, index: int, total: int) -> float:
    start = round(total * 0.5)
    return base if index < start else cosine(base, 0.02, (index - start) / (total - start))


POLICIES: dict[str, tuple[Any, Form]] = {
    "fixed": (Fixed(), lambda b, i, n: b),
    "constant": (Fixed(0.3), lambda b, i, n: b * 0.3),
    "step": (Step(2), lambda b, i, n: b * 0.1 ** (i // 2)),
    "milestones": (Step([1, 5], 0.5), lambda b, i, n: b * 0.5 ** ((i >= 1) + (i >= 5))),
    "step to a minimum": (Step(1, minimum=0.03), lambda b, i, n: max(b * 0.1**i, 0.03)),
    "exp": (Exp(0.9), lambda b, i, n: b * 0.9**i),
    "poly": (Poly(0.9, 0.01), lambda b, i, n: (b - 0.01) * (1 - i / n) ** 0.9 + 0.01),
    "inv": (Inv(0.1, 0.75), lambda b, i, n: b * (1 + 0.1 * i) ** -0.75),
    "cosine": (Cosine(minimum=0.01), lambda b, i, n: cosine(b, 0.01, i / n)),
    "cosine by ratio": (Cosine(minimum_ratio=0.1), lambda b, i, n: cosine(b, b * 0.1, i / n)),
    "linear": (Linear(minimum_ratio=0.1), lambda b, i, n: b + (b * 0.1 - b) * i / n),
    "flat cosine": (FlatCosine(start=0.5, minimum=0.02), flat),
    "restart": (CosineRestart(periods=[2, 5], weights=[1, 0.5], minimum=0.01), restart),
    "one cycle": (OneCycle(), one_cycle),
    "chain": (
        Chain([Fixed(), Exp(0.5), Linear(minimum=0.0)], [1, 2]),
        lambda b, i, n: b if i < 1 else b if i < 2 else b * (1 - (i - 2) / (n - 2)),
    ),
}
BY_STEP_ONLY: dict[str, tuple[Any, Form]] = {
    "cyclic": (Cyclic(cycles=2), cyclic),
    "cyclic fading": (Cyclic(cycles=2, gamma=0.5), lambda b, i, n: cyclic(b, i, n, 0.5)),
}
CASES = [
    *product(POLICIES.items(), ["epoch", "step"]),
    *product(BY_STEP_ONLY.items(), ["step"]),
]
WARM_UPS: dict[str | None, Callable[[int], float]] = {
    None: lambda step: 1.0,
    "constant": lambda step: 0.1 if step < 5 else 1.0,
    "linear": lambda step: 1 - max(1 - step / 5, 0) * 0.9,
    "exp": lambda step: 0.1 ** max(1 - step / 5, 0),
}


class Optimizer:
    """What a schedule needs of an optimizer."""

    def __init__(self, **values: Any) -> None:
        self.param_groups: list[dict[str, Any]] = [{"lr": BASE, **values}]


def run(schedule: Any, optimizer: Any, read: Callable[[dict[str, Any]], float]) -> list[float]:
    """Return the value in force in each of 3 x 7 steps."""
    seen: list[float] = []
    loop = Loop(
        lambda _: seen.append(read(optimizer.param_groups[0])), objects={"optimizer": optimizer}
    )
    loop.attach(schedule)
    loop.fit(range(STEPS), epochs=EPOCHS)
    return seen


def places() -> Iterator[tuple[int, int]]:
    """Yield epoch and step."""
    for step in range(EPOCHS * STEPS):
        yield step // STEPS, step


@pytest.mark.parametrize("warmup", WARM_UPS)
@pytest.mark.parametrize(("case", "by"), CASES, ids=lambda v: v if isinstance(v, str) else v[0])
@pytest.mark.parametrize("kind", [LRSchedule, MomentumSchedule])
def test_each_policy_has_its_closed_form(kind: Any, case: Any, by: str, warmup: Any) -> None:
    """A rate and a momentum follow the formula in every step, by epoch and by step, warmed up."""
    policy, form = case[1]
    warm = None if warmup is None else WarmUp(5, 0.1, warmup)
    key = "lr" if kind is LRSchedule else "momentum"
    seen = run(kind(policy, by=by, warmup=warm), Optimizer(momentum=BASE), lambda g: float(g[key]))
    total = EPOCHS if by == "epoch" else EPOCHS * STEPS
    factor = WARM_UPS[warmup]
    expected = [
        form(BASE, epoch if by == "epoch" else step, total) * factor(step)
        for epoch, step in places()
    ]
    assert seen == pytest.approx(expected, abs=1e-12, rel=0)


def schedulers(package: Any, kind: Literal["LR", "Momentum"], by: str) -> dict[str, Any]:
    """Return how torch's or mmengine's schedulers are made that compute the same."""
    total = EPOCHS if by == "epoch" else EPOCHS * STEPS
    names: dict[str, tuple[str, dict[str, Any]]] = {
        "step": ("Step", {"step_size": 2, "gamma": 0.1}),
        "milestones": ("MultiStep", {"milestones": [1, 5], "gamma": 0.5}),
        "exp": ("Exponential", {"gamma": 0.9}),
        "cosine": ("CosineAnnealing", {"T_max": total, "eta_min": 0.01}),
    }
    if package is torch.optim.lr_scheduler:
        names["poly without minimum"] = ("Polynomial", {"total_iters": total, "power": 0.9})
    else:
        # Its last value, at end - 1, is the minimum; ours would be one later, as mmcv has it.
        names["poly"] = ("Poly", {"power": 0.9, "eta_min": 0.01, "end": total + 1})
    return {
        policy: (getattr(package, name + kind), options)
        for policy, (name, options) in names.items()
    }


@pytest.mark.parametrize("by", ["epoch", "step"])
@pytest.mark.parametrize(
    "name", ["step", "milestones", "exp", "cosine", "poly without minimum", "one cycle"]
)
def test_torch_computes_the_same(name: str, by: str) -> None:
    """Where torch.optim.lr_scheduler has the policy, its values are the same."""
    ours = {**{key: policy for key, (policy, _) in POLICIES.items()}}
    ours["poly without minimum"] = Poly(0.9)
    seen = run(LRSchedule(ours[name], by=by), Optimizer(), lambda g: float(g["lr"]))
    total = EPOCHS if by == "epoch" else EPOCHS * STEPS
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=BASE)
    if name == "one cycle":
        scheduler = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, BASE, total, cycle_momentum=False
        )
    else:
        made, options = schedulers(torch.optim.lr_scheduler, "LR", by)[name]
        scheduler = made(optimizer, **options)
    assert seen == pytest.approx(stepped(scheduler, optimizer, by), abs=1e-12, rel=1e-12)


def stepped(scheduler: Any, optimizer: Any, by: str, key: str = "lr") -> list[float]:
    """Return the values that a scheduler gives over the run."""
    seen = []
    for _, step in places():
        seen.append(float(optimizer.param_groups[0][key]))
        optimizer.step()
        last = step + 1 == EPOCHS * STEPS
        if not last and (by == "step" or (step + 1) % STEPS == 0):
            scheduler.step()
    return seen


@pytest.mark.parametrize("three_phases", [False, True])
@pytest.mark.parametrize("curve", ["cos", "linear"])
def test_one_cycle_is_torchs_for_rate_and_momentum(curve: Any, three_phases: bool) -> None:
    """Over a run by steps both go as OneCycleLR has them."""
    total = EPOCHS * STEPS
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=BASE, momentum=0.95)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, BASE, total, anneal_strategy=curve, three_phase=three_phases
    )
    policy = OneCycle(curve=curve, three_phases=three_phases)
    other = OneCycle(0.95 / 0.85, curve=curve, three_phases=three_phases, start_low=False)
    rates = run(LRSchedule(policy, by="step"), Optimizer(), lambda g: float(g["lr"]))
    momenta = run(
        MomentumSchedule(other, by="step"), Optimizer(betas=(0.95, 0.99)), lambda g: g["betas"][0]
    )
    seen: list[tuple[float, float]] = []
    for _ in range(total):
        group = optimizer.param_groups[0]
        seen.append((group["lr"], group["momentum"]))
        optimizer.step()
        if len(seen) < total:
            scheduler.step()
    assert rates == pytest.approx([rate for rate, _ in seen], abs=1e-12, rel=1e-12)
    assert momenta == pytest.approx([momentum for _, momentum in seen], abs=1e-12, rel=1e-12)


@pytest.mark.parametrize("by", ["epoch", "step"])
@pytest.mark.parametrize("kind", ["LR", "Momentum"])
@pytest.mark.parametrize("name", ["step", "milestones", "exp", "cosine", "poly"])
def test_mmengine_computes_the_same(name: str, kind: Any, by: str) -> None:
    """Where mmengine has the policy, its values are the same, for the momentum too."""
    if importlib.util.find_spec("mmengine") is None:
        pytest.skip("mmengine is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what it imports
        import mmengine.optim

    made, options = schedulers(mmengine.optim, kind, by)[name]
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=BASE, momentum=BASE)
    key = kind.lower()
    theirs = stepped(made(optimizer, **options), optimizer, by, key)
    schedule = {"LR": LRSchedule, "Momentum": MomentumSchedule}[kind]
    ours = run(
        schedule(POLICIES[name][0], by=by), Optimizer(momentum=BASE), lambda g: float(g[key])
    )
    assert ours == pytest.approx(theirs, abs=1e-12, rel=1e-9)


@pytest.mark.parametrize("three_phases", [False, True])
def test_one_cycle_by_few_steps(three_phases: bool) -> None:
    """Runs of one, two and three steps have values, none of them out of bounds."""
    for total in (1, 2, 3):
        values = [OneCycle(three_phases=three_phases)(1.0, i, total) for i in range(total)]
        assert all(0 < value <= 1 for value in values)


def test_after_its_end_a_policy_stays() -> None:
    """Beyond the length of a run a policy that comes to an end stays there."""
    for policy in (Cosine(minimum=0.1), Linear(minimum=0.1), FlatCosine(minimum=0.1)):
        assert policy(1.0, 20, 10) == pytest.approx(0.1)
    assert Poly(minimum=0.1)(1.0, 20, 10) == pytest.approx(0.1)
    assert CosineRestart(periods=[3], minimum=0.1)(1.0, 20, None) == pytest.approx(0.1)
    assert OneCycle()(1.0, 20, 10) == pytest.approx(1 / 25 / 1e4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Step(0), "every 1 or more"),
        (lambda: Step([3, 1]), "ascending"),
        (lambda: Cosine(), "one of minimum and minimum_ratio"),
        (lambda: Cosine(minimum=0, minimum_ratio=0), "one of minimum and minimum_ratio"),
        (lambda: FlatCosine(start=1, minimum=0), "start is a part"),
        (lambda: CosineRestart(periods=[], minimum=0), "each period"),
        (lambda: CosineRestart(periods=[1], weights=[1, 2], minimum=0), "1 periods have 2"),
        (lambda: Cyclic(cycles=0), "at least one cycle"),
        (lambda: Cyclic(up=1), "goes up"),
        (lambda: cast("Any", Cyclic)(curve="sin"), "curve must be"),
        (lambda: OneCycle(up=0), "goes up"),
        (lambda: Chain([Fixed()], [1]), "1 policies have 0 places"),
        (lambda: Chain([Fixed(), Fixed(), Fixed()], [2, 2]), "begins after"),
        (lambda: WarmUp(0), "1 or more long"),
        (lambda: WarmUp(1, 0), "ratio"),
        (lambda: cast("Any", WarmUp)(1, curve="cos"), "curve is"),
        (lambda: cast("Any", WarmUp)(1, by="batch"), "by"),
        (lambda: cast("Any", LRSchedule)("step"), "a policy is one of"),
    ],
)
def test_options_that_make_no_sense_are_refused(make: Callable[[], Any], message: str) -> None:
    """Each is told where it is given."""
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_a_length_that_is_not_known_is_asked_for() -> None:
    """A policy over the whole run needs its length, given as total where the data has none."""
    optimizer = Optimizer()
    loop = Loop(lambda _: None, objects={"optimizer": optimizer})
    loop.attach(LRSchedule(Cosine(minimum=0.0), by="step"))
    with pytest.raises(ValueError, match="total="):
        loop.fit(lambda epoch: iter([1, 2]), epochs=2)
    seen: list[float] = []
    loop = Loop(
        lambda _: seen.append(optimizer.param_groups[0]["lr"]), objects={"optimizer": optimizer}
    )
    loop.attach(LRSchedule(Linear(minimum=0.0), by="step", total=4))
    loop.fit(lambda epoch: iter([1, 2]), epochs=2)
    assert seen == pytest.approx([BASE, BASE * 0.75, BASE * 0.5, BASE * 0.25])


def test_a_run_by_steps_has_its_length() -> None:
    """max_steps is the length that a policy by step goes over."""
    optimizer = Optimizer()
    seen: list[float] = []
    loop = Loop(
        lambda _: seen.append(optimizer.param_groups[0]["lr"]), objects={"optimizer": optimizer}
    )
    loop.attach(LRSchedule(Linear(minimum=0.0), by="step"))
    loop.fit([1, 2, 3], max_steps=5)
    assert seen == pytest.approx([BASE * (1 - i / 5) for i in range(5)])


def test_groups_keep_their_own_rates() -> None:
    """Each parameter group starts from its own rate; one that is added later too."""
    optimizer = Optimizer()
    optimizer.param_groups.append({"lr": 0.04})
    loop = Loop(lambda _: None, objects={"optimizer": optimizer})
    loop.attach(LRSchedule(Step(1)))
    loop.on("epoch_begin", at=[1], priority="HIGHEST")(
        lambda: optimizer.param_groups.append({"lr": 4.0})
    )
    loop.fit([1], epochs=2)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.04, 0.004, 0.4])


def test_a_rate_in_a_tensor_is_written_in_place() -> None:
    """An optimizer whose rate is a tensor keeps that tensor."""
    rate = torch.tensor(BASE)
    optimizer = Optimizer(lr=rate)
    run(LRSchedule(Exp(0.5)), optimizer, lambda g: float(g["lr"]))
    assert optimizer.param_groups[0]["lr"] is rate
    assert float(rate) == pytest.approx(BASE / 4)


def test_what_is_not_there_is_told() -> None:
    """A loop without that optimizer, and an optimizer without momentum, are errors at once."""
    loop = Loop(lambda _: None, objects={"optimizer": Optimizer()})
    with pytest.raises(LookupError, match="no object 'other'; it has 'optimizer'"):
        loop.fit([1], subscribers=[LRSchedule(Fixed(), optimizer="other")])
    with pytest.raises(LookupError, match="no momentum"):
        loop.fit([1], subscribers=[MomentumSchedule(Fixed())])
