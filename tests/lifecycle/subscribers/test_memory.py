"""What subscribers of one run have in common."""

from __future__ import annotations

import gc

import pytest

from lifecycle import Loop
from lifecycle.subscribers.memory import Memory


class Counter(Memory):
    """Counts epochs, as a user's own subscriber would."""

    remembers = ("epochs",)

    def reset(self) -> None:
        self.epochs = 0

    def on_train_begin(self, loop: Loop) -> None:
        self.begin(loop)

    def on_epoch_end(self) -> None:
        self.epochs += 1


def test_a_base_without_a_reset_of_its_own_says_so() -> None:
    """reset has to be written by each that remembers something."""
    with pytest.raises(NotImplementedError):
        Memory().reset()


def test_a_state_is_used_up_by_the_run_that_goes_on_from_it() -> None:
    """The run after a load goes on from it, and the one after that is fresh."""
    counter = Counter()
    loop = Loop(lambda batch: None)
    loop.attach(counter)
    counter.load_state_dict({"epochs": 5})
    loop.fit([1], epochs=2)
    assert counter.epochs == 7
    loop.fit([1], epochs=2)
    assert counter.epochs == 2


def test_what_was_loaded_shares_nothing_with_the_state() -> None:
    """Changing the memory leaves the state that it came from as it was."""
    counter = Counter()
    state = {"epochs": [1]}
    counter.load_state_dict(state)
    counter.epochs += [2]  # type: ignore[operator]
    assert state == {"epochs": [1]}


def test_a_loop_that_is_gone_holds_nothing_back() -> None:
    """The subscriber does not keep its loop alive, and serves the next."""
    counter = Counter()
    for _ in range(2):
        loop = Loop(lambda batch: None)
        loop.attach(counter)
        loop.fit([1], epochs=1)
        assert counter.owned_by(loop)
        del loop
        gc.collect()
        assert counter._loop is not None
        assert counter._loop() is None
