"""Locks on open files between processes, by the means of the system. Closing the file releases its lock."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    import msvcrt

    def lock(descriptor: int) -> None:
        """Wait for the lock. Raises OSError after ten seconds, the limit of this system."""
        msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)

    def lock_at_once(descriptor: int) -> None:
        """Take the lock. Raises OSError if another process holds it."""
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def lock(descriptor: int) -> None:
        """Wait for the lock."""
        fcntl.flock(descriptor, fcntl.LOCK_EX)

    def lock_at_once(descriptor: int) -> None:
        """Take the lock. Raises OSError if another process holds it."""
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
