"""xarray opens groups and writes datasets; importing this package registers `Dataset.intarsia`.

The backend is in this package, so the accessor also exists once xarray has opened any dataset with it.
"""

from contextlib import suppress

from intarsia.errors import MissingExtraError
from intarsia.extras import extra
from intarsia.interop.xarray.from_xarray import DatasetAccessor

# Without xarray, `from intarsia import *` still finds `from_xarray`, which says what to install when called.
with suppress(MissingExtraError):
    extra("xarray", "xarray").register_dataset_accessor("intarsia")(DatasetAccessor)
