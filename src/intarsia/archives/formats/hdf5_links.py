"""What an HDF5 file shows of other files: links, virtual datasets and external storage, found before use.

HDF5 is given the bytes of one file, and opens every other file that is named in it through the same bytes: it
finds this file again, under the wrong name. So links are followed here, as far as they stay in the file, and
datasets whose values are in other files are recognised by their creation properties. Even the shape of a
virtual dataset may depend on other files.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any

from intarsia.archives.formats.hdf5_storage import library, text
from intarsia.archives.locations import Sources, url_of
from intarsia.archives.permissions import folder_of
from intarsia.errors import IngestError

MOST_LINKS = 16
"""How many links in a row are followed: as many as HDF5 itself follows."""

OWN_FILE = "."
"""The name under which a virtual dataset refers to datasets in its own file."""

PREFIX = "HDF5_EXTFILE_PREFIX"
"""The environment variable that tells HDF5 in which directory external storage is."""

SHOWN = 3
"""How many other files are named."""


class ElsewhereError(IngestError):
    """What a link leads to, or holds, is not in this file."""


def find(group: Any, path: bytes) -> Any:
    """The identifier of the object at a path.

    Raises `ElsewhereError` if a link on the way leads to another file, `KeyError` if nothing is there.
    """
    h5py = library()
    here, names, followed = group, [path], 0
    while names:
        name, *names = names
        if b"/" in name:
            if name.startswith(b"/"):
                here = h5py.h5o.open(group, b"/")
            names = name.split(b"/") + names
            continue
        if name in (b"", b"."):
            continue
        if not isinstance(here, h5py.h5g.GroupID) or not here.links.exists(name):
            raise KeyError(text(path))
        kind = here.links.get_info(name).type
        if kind == h5py.h5l.TYPE_HARD:
            here = h5py.h5o.open(here, name)
        elif kind == h5py.h5l.TYPE_SOFT:
            followed += 1
            if followed > MOST_LINKS:
                raise ElsewhereError(f"it is a link that leads through more than {MOST_LINKS} others")
            names = [here.links.get_val(name), *names]
        elif kind == h5py.h5l.TYPE_EXTERNAL:
            file, target = here.links.get_val(name)
            raise ElsewhereError(
                f"{text(name)!r} is an external link to {text(target)!r} in the file {os.fsdecode(file)}, "
                "which is not followed: ingest that file itself"
            )
        else:
            raise ElsewhereError(f"{text(name)!r} is a link of the unknown type {kind}")
    return here


def objects_in(group: Any, drop: Collection[str] = ()) -> tuple[dict[str, Any], dict[str, str]]:
    """Everything in a group by name, in its order; and the links that are not followed, and why."""
    found, left_out = {}, {}
    for name in group:
        if text(name) in drop:
            continue
        try:
            found[text(name)] = find(group, name)
        except KeyError:
            left_out[text(name)] = f"it is a link to {_target(group, name)}, which is not in the file"
        except ElsewhereError as error:
            left_out[text(name)] = str(error)
    return found, left_out


def _target(group: Any, name: bytes) -> str:
    h5py = library()
    is_soft = group.links.get_info(name).type == h5py.h5l.TYPE_SOFT
    return repr(text(group.links.get_val(name))) if is_soft else "an object"


def check_storage(dataset: Any, plist: Any, url: str, sources: Sources) -> None:
    """Raise `ElsewhereError` if values are in other files, except for external storage that may be read."""
    h5py = library()
    if plist.get_external_count():
        _check_files(plist, url, sources)
    if plist.get_layout() != h5py.h5d.VIRTUAL:
        return
    count = plist.get_virtual_count()
    parts = dict.fromkeys(
        (plist.get_virtual_filename(i), plist.get_virtual_dsetname(i)) for i in range(count)
    )
    others = [f"{name!r} in the file {file}" for file, name in parts if file != OWN_FILE]
    if others:
        more = f" and {len(others) - SHOWN} more" if len(others) > SHOWN else ""
        raise ElsewhereError(
            f"it is a virtual dataset, made of {', '.join(others[:SHOWN])}{more}, which is not followed: "
            "ingest what it is made of"
        )
    root = h5py.h5o.open(dataset, b"/")
    for _, name in parts:
        _check_part(root, name, url, sources)


def _check_part(root: Any, name: str, url: str, sources: Sources) -> None:
    """Raise `ElsewhereError` unless a dataset of the same file can be part of a virtual one.

    A part that is virtual itself may lead in a circle, which HDF5 follows until it crashes.
    """
    h5py = library()
    if "%" in name:
        raise ElsewhereError(f"it is a virtual dataset, made of a series of datasets, {name!r}")
    try:
        part = find(root, name.encode("utf-8", "surrogateescape"))
    except KeyError:
        return  # HDF5 shows the fill value there
    if not isinstance(part, h5py.h5d.DatasetID):
        return
    plist = part.get_create_plist()
    if plist.get_layout() == h5py.h5d.VIRTUAL:
        raise ElsewhereError(f"it is a virtual dataset, made of {name!r}, which is virtual itself")
    check_storage(part, plist, url, sources)


def _check_files(plist: Any, url: str, sources: Sources) -> None:
    """Raise `ElsewhereError` unless the source may refer to all files that hold the values."""
    names = [os.fsdecode(plist.get_external(i)[0]) for i in range(plist.get_external_count())]
    prefix = os.environ.get(PREFIX, "")
    if prefix and not all(map(os.path.isabs, names)):
        raise ElsewhereError(f"its values are in {names[0]}, below what the variable {PREFIX} says: unset it")
    try:
        sources.permissions.checked(dict.fromkeys(map(url_of, names)), folder_of(url))
    except IngestError as error:
        raise ElsewhereError(f"its values are in external files: {error}") from None
    gone = [name for name in names if not os.path.exists(name)]
    if gone:
        raise ElsewhereError(f"its values are in the external file {gone[0]}, which does not exist")
