"""What subscribers of one run have in common: one loop at a time, and a state to save."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, ClassVar

from lifecycle.subscribers.snapshot import copied

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lifecycle.loop import Loop

__all__ = ["Memory", "OneLoop"]


class OneLoop:
    """Base of the subscribers that keep something of a run: a count, a file.

    Such a one follows one loop. A second loop may take it over once the first stands
    still, as in a sweep; while the first is running it is refused, because two runs would
    overwrite each other's counts.
    """

    _loop: weakref.ref[Loop] | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def follow(self, loop: Loop) -> None:
        """Belong to this loop from now on.

        Raises:
            RuntimeError: It follows another loop that is still running.
        """
        owner = self._loop() if self._loop is not None else None
        if owner is loop:
            return
        if owner is not None and owner.state.running:
            kind = type(self).__name__
            raise RuntimeError(
                f"{self!r} is following another loop, which is still running; a {kind} follows"
                f" one run at a time, so give each loop its own: loop.attach({kind}(...))"
            )
        self._loop = weakref.ref(loop)

    def owned_by(self, loop: Loop) -> bool:
        """Whether it follows that loop."""
        return self._loop is not None and self._loop() is loop


class Memory(OneLoop):
    """Base of those whose memory is saved with a run.

    A run begins with a fresh memory, unless a saved one was loaded just before.
    """

    remembers: ClassVar[tuple[str, ...]] = ()
    """The attributes that `state_dict` saves."""

    _restored = False

    def reset(self) -> None:
        """Forget what earlier runs left."""
        raise NotImplementedError

    def begin(self, loop: Loop) -> None:
        """Take part in a run that begins now; its memory is fresh, or the one just loaded."""
        self.follow(loop)
        if not self._restored:
            self.reset()
        self._restored = False

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint saves of this subscriber."""
        return {name: getattr(self, name) for name in self.remembers}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up a saved state; the run that begins next goes on from it.

        Raises:
            KeyError: The state is not one of this kind of subscriber.
        """
        if set(state) != set(self.remembers):
            raise KeyError(
                f"this is no state of {type(self).__name__}: it remembers"
                f" {sorted(self.remembers)}, the state has {sorted(state)}"
            )
        for name in self.remembers:
            setattr(self, name, copied(state[name]))
        owner = self._loop() if self._loop is not None else None
        # Loaded into a run under way, as a resume does, it belongs to that run alone.
        self._restored = owner is None or not owner.state.running
