"""Pictures without a screen: a Matplotlib figure, and its pixels."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle


def figure(title: str) -> "tuple[Figure, Axes]":
    """A figure of 400 by 300 pixels; never through pyplot, whose state would outlive the call."""
    from matplotlib.figure import Figure

    made = Figure(figsize=(4, 3), dpi=100, layout="constrained")
    axes = made.add_subplot()
    axes.set_title(title, fontsize=9)
    axes.tick_params(labelsize=8)
    return made, axes


def rectangle(x: float, y: float, width: float, height: float, colour: str) -> "Rectangle":
    from matplotlib.patches import Rectangle

    return Rectangle((x, y), width, height, color=colour)


def pixels(made: "Figure") -> NDArray[np.uint8]:
    """(height, width, 3), red, green, blue."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(made)
    canvas.draw()  # type: ignore[no-untyped-call]
    buffer = canvas.buffer_rgba()  # type: ignore[no-untyped-call]
    return np.array(buffer, dtype=np.uint8)[:, :, :3].copy()
