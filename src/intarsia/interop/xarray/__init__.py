"""xarray opens groups and writes datasets; importing this room registers `Dataset.intarsia`."""

from contextlib import suppress

from intarsia.errors import MissingExtraError

# Without xarray, `from intarsia import *` still finds `from_xarray`, which says what to install when called.
with suppress(MissingExtraError):
    from intarsia.interop.xarray import accessor as accessor
