"""Trust, by the million: what `make soak` runs, and `docs/trust.md` tells of. One file for each part."""

from importlib import import_module

FULL = {
    "damage": 1_000_000,
    "histories": 300,
    "threads": 100_000,
    "disk": 10_000,
    "hostile": 1_000,
    "upgrades": 1_000,
}
"""The parts, and the cases of a full run; a history has about 35 acknowledged appends and 4 kills."""

PARTS = {name: lambda name=name: import_module(f"soak.{name}") for name in FULL}
