"""How the kernels of this package are compiled."""

from __future__ import annotations

from collections.abc import Callable

from numba import njit


def kernel(function: Callable) -> Callable:
    """Compiles a function, without the interpreter's lock, so that threads run side by side.

    Machine code is kept on disk between processes; where no directory is writable it is compiled anew in each.
    Arithmetic is never reordered nor fused: the same numbers come out on every machine.
    """
    try:
        return njit(cache=True, nogil=True)(function)
    except RuntimeError:  # Numba found no place for its cache
        return njit(nogil=True)(function)
