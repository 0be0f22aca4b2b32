"""GracefulShutdown: in good order at the first signal, at once at the second."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from typing import Any

import pytest

from lifecycle import Loop
from lifecycle.subscribers import GracefulShutdown

pytestmark = pytest.mark.skipif(os.name == "nt", reason="sends POSIX signals")


def run(signal_at: dict[str, Any], shutdown: GracefulShutdown, name: str = "SIGTERM") -> list[str]:
    """Run two epochs of two batches, raise a signal where told, and return the points sent."""
    points: list[str] = []
    loop = Loop(lambda batch: None, lambda batch: None, predict_step=lambda batch: None)
    loop.attach(shutdown)
    loop.on("*", priority="HIGHEST")(lambda signal: points.append(signal))
    loop.on("train_end", "test_end")(lambda outcome: points.append(outcome))
    for point, at in signal_at.items():
        loop.on(point, at=at)(lambda: signal.raise_signal(getattr(signal, name)))
    try:
        loop.fit([1, 2], epochs=2, validation_data=[1])
    except BaseException as error:
        points.append(repr(error))
        raise
    finally:
        run_points[:] = points
    return points


run_points: list[str] = []


@pytest.mark.parametrize(("name", "status"), [("SIGTERM", 143), ("SIGUSR1", 138)])
def test_the_batch_is_finished_and_the_status_is_the_shells(name: str, status: int) -> None:
    """No batch starts after the signal, the brackets close, and SystemExit has 128 + its number."""
    with pytest.raises(SystemExit) as left:
        run({"train_batch_begin": [0]}, GracefulShutdown(), name)
    assert left.value.code == status
    assert run_points.count("train_batch_end") == run_points.count("train_batch_begin") == 1
    assert run_points[-4:-1] == ["epoch_end", "train_end", "interrupted"]
    assert "exception" not in run_points


def test_an_interrupt_comes_out_as_keyboard_interrupt() -> None:
    """SIGINT ends the run in the same order, and then as Ctrl-C always does."""
    with pytest.raises(KeyboardInterrupt):
        run({"train_batch_begin": [0]}, GracefulShutdown(), "SIGINT")
    assert run_points.count("train_batch_end") == 1
    assert "interrupted" in run_points


@pytest.mark.parametrize("point", ["epoch_end", "train_batch_end", "epoch_begin"])
def test_a_signal_between_two_batches_is_heeded(point: str) -> None:
    """Wherever in an epoch it comes, the second epoch is not gone through."""
    with pytest.raises(SystemExit):
        run({point: [0]}, GracefulShutdown())
    assert run_points.count("epoch_end") == 1
    assert "interrupted" in run_points


def test_a_signal_at_the_very_end_is_not_lost() -> None:
    """A run that is over when the signal comes is complete, and the process still leaves."""
    loop = Loop(lambda batch: None)
    loop.attach(GracefulShutdown())
    loop.on("train_end")(lambda: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(SystemExit, match="143"):
        loop.fit([1], epochs=1)
    assert loop.state.outcome == "completed"


@pytest.mark.parametrize("stage", ["evaluate", "predict"])
def test_passes_of_their_own_are_ended_too(stage: str) -> None:
    """evaluate and predict finish their batch and leave."""
    batches = []
    loop = Loop(test_step=lambda batch: batches.append(batch), predict_step=batches.append)
    loop.attach(GracefulShutdown("SIGTERM"))
    loop.on("test_batch_begin", "predict_batch_begin", at=[1])(
        lambda: signal.raise_signal(signal.SIGTERM)
    )
    with pytest.raises(SystemExit):
        getattr(loop, stage)([1, 2, 3, 4])
    assert batches == [1, 2]


def test_a_second_signal_ends_at_once() -> None:
    """The handler that was there before gets the second signal, in the middle of the batch."""
    received: list[int] = []

    def twice(batch: int) -> None:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)

    old = signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
    try:
        loop = Loop(twice)
        loop.attach(GracefulShutdown())
        with pytest.raises(SystemExit):
            loop.fit([1], epochs=1)
    finally:
        signal.signal(signal.SIGTERM, old)
    assert received == [signal.SIGTERM]


def test_handlers_are_there_only_while_a_stage_runs() -> None:
    """Before and after, also after an error, the old handlers are in place."""
    watched = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1]
    before = [signal.getsignal(number) for number in watched]
    shutdown = GracefulShutdown()
    inside = []

    def step(batch: int) -> None:
        inside.append(signal.getsignal(signal.SIGTERM))
        raise ZeroDivisionError

    loop = Loop(step)
    loop.attach(shutdown)
    assert [signal.getsignal(number) for number in watched] == before
    with pytest.raises(ZeroDivisionError):
        loop.fit([0], epochs=1)
    assert inside != [before[0]]
    assert [signal.getsignal(number) for number in watched] == before


def test_handlers_that_others_set_meanwhile_and_ignored_signals_are_left() -> None:
    """What the user sets during the run stays; what is ignored is not listened to."""
    first = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    second = signal.getsignal(signal.SIGTERM)

    def own(number: int, frame: Any) -> None:
        pass

    def step(batch: int) -> None:
        assert signal.getsignal(signal.SIGUSR1) == signal.SIG_IGN
        signal.signal(signal.SIGTERM, own)

    try:
        loop = Loop(step)
        loop.attach(GracefulShutdown())
        loop.fit([1], epochs=1)
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGUSR1, first)
        signal.signal(signal.SIGTERM, second)


def test_another_thread_is_left_alone() -> None:
    """A loop in a thread runs to its end, and no handler is set for it."""
    before = signal.getsignal(signal.SIGTERM)
    seen: list[Any] = []
    loop = Loop(lambda batch: seen.append(signal.getsignal(signal.SIGTERM)))
    loop.attach(GracefulShutdown())
    thread = threading.Thread(target=loop.fit, args=([1],), kwargs={"epochs": 1})
    thread.start()
    thread.join()
    assert seen == [before]
    assert loop.state.outcome == "completed"


def test_attached_to_a_run_under_way_it_works_from_there() -> None:
    """Handlers come with the first batch that ends, and go with the run."""
    before = signal.getsignal(signal.SIGTERM)
    loop = Loop(lambda batch: signal.raise_signal(signal.SIGTERM) if batch == 2 else None)
    loop.on("train_batch_begin", at=[0])(lambda loop: loop.attach(GracefulShutdown()))
    with pytest.raises(SystemExit):
        loop.fit([1, 2, 3, 4], epochs=1)
    assert loop.state.steps_done == 2
    assert signal.getsignal(signal.SIGTERM) is before


SCRIPT = """
    import os, signal, sys
    from lifecycle import Loop
    from lifecycle.subscribers import GracefulShutdown

    def step(batch):
        for _ in range(int(sys.argv[2])):
            os.kill(os.getpid(), getattr(signal, sys.argv[1]))
        print("finished", batch)

    loop = Loop(step)
    loop.attach(GracefulShutdown())
    loop.on("train_end")(lambda outcome: print(outcome))
    loop.fit([1, 2], epochs=1)
"""


@pytest.mark.parametrize(
    ("name", "times", "status", "printed"),
    [
        ("SIGTERM", 1, 143, ["finished 1", "interrupted"]),
        ("SIGUSR1", 1, 138, ["finished 1", "interrupted"]),
        ("SIGINT", 1, -signal.SIGINT, ["finished 1", "interrupted"]),
        ("SIGTERM", 2, -signal.SIGTERM, []),
        ("SIGINT", 2, -signal.SIGINT, ["interrupted"]),
    ],
)
def test_the_process_ends_as_the_shell_expects(
    name: str, times: int, status: int, printed: list[str]
) -> None:
    """The exit status is 128 + n, or death by the signal, which a shell shows as the same."""
    script = textwrap.dedent(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-u", "-c", script, name, str(times)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    assert done.stdout.split("\n")[:-1] == printed
    assert f"{name}: finishing the batch; once more to end at once" in done.stderr


def test_a_name_that_is_no_signals_is_refused() -> None:
    """SIG_IGN is not a signal; a signal that this platform lacks is left out."""
    with pytest.raises(ValueError, match="'SIG_IGN' is no signal's name"):
        GracefulShutdown("SIG_IGN")
    assert GracefulShutdown("SIGNOTHERE").signals == ()
    assert repr(GracefulShutdown("SIGTERM")) == "<GracefulShutdown SIGTERM>"
