"""Grids of parameters and examples: all of them in `make torture`, some of them in `make test`."""

from itertools import product

import pytest
from hypothesis import settings

EXAMPLES = settings().max_examples
dear = settings(max_examples=EXAMPLES if EXAMPLES > 100 else EXAMPLES // 2)
"""For tests whose examples take long: half as many in `make test`, all with the profile `thorough`."""


def spread(*axes, times=1):
    """Every combination of one value per axis, for `parametrize`.

    `make test` tries those on a diagonal of the grid, and so every value of every axis; with `times`, on so
    many diagonals beside each other. The others are marked `torture`.
    """
    axes = [list(axis) for axis in axes]
    kept = {
        tuple((i + turn * j) % len(axis) for j, axis in enumerate(axes))
        for turn in range(times)
        for i in range(max(map(len, axes)))
    }
    return [
        pytest.param(
            *(axis[i] for axis, i in zip(axes, place, strict=True)),
            marks=() if place in kept else pytest.mark.torture,
        )
        for place in product(*(range(len(axis)) for axis in axes))
    ]
