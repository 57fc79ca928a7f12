"""The paper's one-dimensional non-convex problem, equation (8): three valleys, the deepest at 4.75.

f(w) = w² + 2                 w < 1
       (w − 2.5)² + 0.75      1 ≤ w < 3.5
       (w − 4.75)² + 0.19     w ≥ 3.5
"""

from __future__ import annotations

import numpy as np

Array = np.ndarray

START, DELTA = 4.0, 0.5
BEST = (4.5, 5.0)  # the grid points beside 4.75, equally good


def loss(w: Array) -> Array:
    """f."""
    w = np.asarray(w, dtype=float)
    return np.where(w < 1, w**2 + 2, np.where(w < 3.5, (w - 2.5) ** 2 + 0.75, (w - 4.75) ** 2 + 0.19))


def gradient(w: Array) -> Array:
    """f', from the right at the two kinks."""
    w = np.asarray(w, dtype=float)
    return 2 * (w - np.where(w < 1, 0.0, np.where(w < 3.5, 2.5, 4.75)))
