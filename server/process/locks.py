"""Locks on open files that other processes respect, by what the system offers. Closing the file lets go."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    import msvcrt

    def lock(descriptor: int) -> None:
        """Wait until this process alone holds the file. Raises OSError after ten seconds, which is as long as
        this system waits."""
        msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)

    def lock_at_once(descriptor: int) -> None:
        """Hold the file alone. Raises OSError where another process does."""
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def lock(descriptor: int) -> None:
        """Wait until this process alone holds the file."""
        fcntl.flock(descriptor, fcntl.LOCK_EX)

    def lock_at_once(descriptor: int) -> None:
        """Hold the file alone. Raises OSError where another process does."""
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
