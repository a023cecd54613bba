"""xarray opens groups and writes datasets; importing this room registers `Dataset.intarsia`.

The backend lies in this room, so the accessor is also there once xarray has opened any dataset with it.
"""

from contextlib import suppress

from intarsia.errors import MissingExtraError
from intarsia.extras import extra
from intarsia.interop.xarray.from_xarray import DatasetAccessor

# Without xarray, `from intarsia import *` still finds `from_xarray`, which says what to install when called.
with suppress(MissingExtraError):
    extra("xarray", "xarray").register_dataset_accessor("intarsia")(DatasetAccessor)
