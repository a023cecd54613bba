"""Choosing encodings: samples, candidates, advice, and acting on it."""

from intarsia.tune.advise import Advice, advise
from intarsia.tune.optimize import Change, optimize

__all__ = ["Advice", "Change", "advise", "optimize"]
