"""Logical arrays in Icechunk repositories, committed and versioned as one unit.

- Where and which version: `repository`, `version`; how storage is reached: `storage_options`; which source
  files may be read: `authorization`.
- `commit` has the one loop that commits beside other writers; `locking` guards local repositories.
- On top of it: `transaction`, `append_recode`, `forks`, `maintain` (replicas and the policy).
- `history`, `diff`; `verify_vacuum` verifies, and finds and removes what killed writers left.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
