"""Logical arrays in Icechunk repositories, committed and versioned as one unit.

- Where and which version: `repository`, `version`; which other files may be read: `access`.
- `commit` has the one loop that commits beside other writers; `locking` guards local repositories.
- On top of it: `transaction`, `uploads` (append and recode), `forks`, `replicate` (replicas, `maintain`).
- `history`, `diff`; `collect` verifies and removes.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
