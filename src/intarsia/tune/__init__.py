"""Choosing encodings: candidates are tried on samples, measured and ranked; `optimize` acts on the result."""

from intarsia.tune.advice import Advice, Objective, Trial, advise, candidates
from intarsia.tune.optimization import Change, RegionChanges, optimize

__all__ = ["Advice", "Change", "Objective", "RegionChanges", "Trial", "advise", "candidates", "optimize"]
