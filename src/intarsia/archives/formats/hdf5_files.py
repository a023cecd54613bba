"""Open HDF5 files: the source itself, and others that it shows and that may be read.

HDF5 is given the bytes of one file, and opens every other file that is named in it through the same bytes: it
finds this file again, under the wrong name. So links are followed here, one by one.

Global heaps are checked before HDF5 reads them: some damage sends it into an endless loop.
"""

from __future__ import annotations

import io
import os
import re
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from struct import Struct
from typing import Any
from urllib.parse import quote

from intarsia.archives import source_files
from intarsia.archives.formats.format import UnreadableError
from intarsia.archives.source_files import ContentIdentity, Sources, local_path, url_of
from intarsia.display import one_line
from intarsia.errors import IngestError, argument
from intarsia.extras import import_extra


@cache
def library() -> Any:
    """h5py."""
    return import_extra("h5py", "virtual")


def text(name: bytes) -> str:
    """A name as h5py returns it."""
    return name.decode("utf-8", "surrogateescape")


MAX_LINKS = 16
"""How many links in a row are followed: as many as HDF5 itself follows."""

EXTERNAL_PREFIX, LINK_PREFIX, VIRTUAL_PREFIX = "HDF5_EXTFILE_PREFIX", "HDF5_EXT_PREFIX", "HDF5_VDS_PREFIX"
"""Environment variables that tell HDF5 in which directories external storage, the files of external links and
those of virtual datasets are."""


@dataclass(frozen=True, eq=False)
class HDF5File:
    """An open file."""

    id: Any
    """Its identifier in HDF5."""

    url: str
    """The name under which it was opened."""

    location: str
    """Where it is: a link may lead there."""

    files: HDF5Files

    identity: ContentIdentity | None = None
    """Identifies its content; None for the source itself."""


class HDF5Files(ExitStack):
    """A source, and the files that it shows by links and virtual datasets, as far as they may be read."""

    def __init__(self, sources: Sources, folder: str) -> None:
        super().__init__()
        self.sources = sources
        self.folder = folder
        """The folder or bucket of the source: what is in there may be read."""
        self._open: dict[str, HDF5File] = {}
        self._visited: HDF5Files | None = None

    def open(self, url: str, identity: ContentIdentity | None = None) -> HDF5File:
        """A file, which stays open; the source itself has no identity here."""
        location = self.sources.location(url, self.folder)
        reader = self.enter_context(self.sources.reader(url))
        if identity is not None and identity.size <= source_files.WHOLE_BYTES:
            reader = io.BytesIO(reader.read())
        return HDF5File(self._open_reader(reader), url, location, self, identity)

    def _open_reader(self, reader: Any) -> Any:
        """The identifier of an HDF5 file; a file that is all in memory is not read through Python."""
        content = memoryview(reader.getvalue() if isinstance(reader, io.BytesIO) else b"")
        heaps = (content[found.start() :] for found in re.finditer(re.escape(SIGNATURE), content))
        if content and not any(map(is_endless, heaps)):
            with suppress(ValueError, OSError):  # the other way says what is wrong with it
                image = library().h5f.open_file_image(content)
                self.callback(image.close)
                return image
        return self.enter_context(library().File(HeapReader(reader), "r")).id

    def open_other(self, url: str) -> HDF5File:
        """A file that the source shows."""
        if url not in self._open:
            try:
                self._open[url] = self.open(url, self.sources.identity(url))
            except OSError as error:
                raise UnreadableError(f"the file {url} cannot be read: {one_line(error)}") from error
        return self._open[url]

    def visit(self, url: str) -> HDF5File:
        """Another file, which stays open until the next visit: a virtual dataset may have thousands."""
        if self._visited is None or url not in self._visited._open:
            if self._visited is not None:
                self._visited.close()
            self._visited = self.enter_context(HDF5Files(self.sources, self.folder))
        return self._visited.open_other(url)

    def locate(self, name: str, file: HDF5File, variable: str) -> str | None:
        """The URL of the file that HDF5 would open for a name in a file; None if there is none.

        Raises `UnreadableError` if it may not be read. HDF5 takes an absolute name as it is; then it looks
        for its last part beside the file, in the current directory, and beside what the file is a link to.
        """
        refuse_prefix(variable, name)
        path, last = local_path(file.url), os.path.basename(name) if os.path.isabs(name) else name
        beside = file.url.rpartition("/")[0]
        if path is None:
            root = "/".join(file.url.split("/", 3)[:3])
            inside = os.path.normpath(f"{beside.removeprefix(root)}/{last}")
            urls = [f"{root}{quote(inside)}"]
        else:
            urls = [name, f"{path.parent}/{last}", last, f"{path.resolve().parent}/{last}"]
            urls = urls[not os.path.isabs(name) :]
        for each in urls:
            try:
                # a step up from a link leads elsewhere than its name says
                url = url_of(os.path.realpath(each, strict=True) if ".." in each else each)
                self.sources.identity(url)
            except (FileNotFoundError, NotADirectoryError):
                continue
            try:
                self.sources.location(url, self.folder)
            except IngestError as error:
                raise UnreadableError(str(error)) from None
            return url
        return None


def find(file: HDF5File, group: Any, path: bytes) -> tuple[Any, HDF5File]:
    """The identifier of the object at a path, and the file that it is in.

    Raises `UnreadableError` if a link on the way leads to what cannot be read, `KeyError` if nothing is
    there: with what the last link says.
    """
    h5py = library()
    here, names, followed, leads_to = group, [path], 0, ""
    while names:
        name, *names = names
        if b"/" in name:
            if name.startswith(b"/"):
                here = h5py.h5o.open(here, b"/")
            names = name.split(b"/") + names
            continue
        if name in (b"", b"."):
            continue
        if not isinstance(here, h5py.h5g.GroupID) or not here.links.exists(name):
            raise KeyError(leads_to or repr(text(path)))
        kind = here.links.get_info(name).type
        if kind in (h5py.h5l.TYPE_SOFT, h5py.h5l.TYPE_EXTERNAL):
            followed += 1
            if followed > MAX_LINKS:
                raise UnreadableError(f"it is a link that leads through more than {MAX_LINKS} others")
        if kind == h5py.h5l.TYPE_HARD:
            here = h5py.h5o.open(here, name)
        elif kind == h5py.h5l.TYPE_SOFT:
            leads_to = repr(text(here.links.get_val(name)))
            names = [here.links.get_val(name), *names]
        elif kind == h5py.h5l.TYPE_EXTERNAL:
            other, target = here.links.get_val(name)
            leads_to = f"{text(target)!r} in the file {os.fsdecode(other)}"
            try:
                url = file.files.locate(os.fsdecode(other), file, LINK_PREFIX)
                if url is None:
                    raise UnreadableError("it does not exist")
                file = file.files.open_other(url)
            except UnreadableError as error:
                raise UnreadableError(f"{text(name)!r} is an external link to {leads_to}: {error}") from None
            here, names = h5py.h5o.open(file.id, b"/"), [target, *names]
        else:
            raise UnreadableError(f"{text(name)!r} is a link of the unknown type {kind}")
    return here, file


def objects_in(
    file: HDF5File, group: Any, path: str
) -> tuple[dict[str, tuple[Any, HDF5File]], dict[str, str]]:
    """Everything in the group at a path, by name, and its files; and the links not followed, and why."""
    found, left_out = {}, {}
    for name in group:
        try:
            item, where = find(file, group, name)
        except KeyError as error:
            left_out[text(name)] = f"it is a link to {error.args[0]}, which is not there"
        except UnreadableError as error:
            left_out[text(name)] = str(error)
        else:
            found[text(name)] = item, where
            if where is not file and isinstance(item, library().h5g.GroupID):
                left_out[text(name)] = (
                    f"it is a link to a group in the file {where.url}, which "
                    f"{argument('source_group', f'{path}/{text(name)}'.strip('/'))} ingests"
                )
    return found, left_out


def check_external_files(plist: Any, file: HDF5File) -> None:
    """Raise `UnreadableError` if values of a dataset are in other files that may not be read, or are gone."""
    for i in range(plist.get_external_count()):
        name = os.fsdecode(plist.get_external(i)[0])
        if not os.path.isabs(name):
            refuse_prefix(EXTERNAL_PREFIX, name)
        try:
            file.files.sources.location(url_of(name), file.files.folder)
        except IngestError as error:
            raise UnreadableError(f"its values are in external files: {error}") from None
        if not os.path.exists(name):
            raise UnreadableError(f"its values are in the external file {name}, which does not exist")


def refuse_prefix(variable: str, name: str) -> None:
    """Raise `UnreadableError` if HDF5 would look for a file elsewhere than we do."""
    if os.environ.get(variable):
        raise UnreadableError(f"{name} is to be found below what the variable {variable} says: unset it")


SIGNATURE = b"GCOL\x01\0\0\0"
HEAD, OBJECT = Struct("<8sQ"), Struct("<H6xQ")
"""The heads of a collection (signature and size) and of an object (number first, size last)."""

MAX_HEAP_BYTES = 1 << 24

FURTHEST = 1 << 63
"""HDF5 counts modulo twice this: so long a step leads backwards, or nowhere."""


class HeapReader:
    """Reads for HDF5, and refuses a global heap with a step that does not lead forwards."""

    def __init__(self, reader: Any) -> None:
        self.read, self.seek, self.tell = reader.read, reader.seek, reader.tell

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer, as HDF5 reads."""
        start = self.tell()
        content = self.read(len(buffer))
        buffer[: len(content)] = content
        heap = content.find(SIGNATURE)
        if heap >= 0:
            self._check(start + heap)
            self.seek(start + len(content))
        return len(content)

    def _check(self, start: int) -> None:
        self.seek(start)
        head = self.read(HEAD.size)
        size = HEAD.unpack(head)[1] if len(head) == HEAD.size else 0
        if is_endless(head + self.read(max(0, min(size, MAX_HEAP_BYTES) - HEAD.size))):
            raise OSError(
                f"the global heap at byte {start} is damaged: "
                "free space in it has no length, or an object in it is larger than any file"
            )


def is_endless(heap: bytes | memoryview) -> bool:
    """Whether going from object to object in a collection, where bytes begin, never ends.

    >>> is_endless(HEAD.pack(SIGNATURE, 64) + OBJECT.pack(1, 8) + bytes(8) + OBJECT.pack(0, 24) + bytes(8))
    False
    >>> is_endless(HEAD.pack(SIGNATURE, 64) + OBJECT.pack(1, 8) + bytes(32))
    True
    >>> is_endless(HEAD.pack(SIGNATURE, 64) + OBJECT.pack(1, 2**64 - 1) + bytes(32))
    True
    """
    end = min(HEAD.unpack_from(heap)[1], len(heap), MAX_HEAP_BYTES) if len(heap) >= HEAD.size else 0
    at = HEAD.size
    while at + OBJECT.size <= end:
        number, size = OBJECT.unpack_from(heap, at)
        step = OBJECT.size + (size + 7) // 8 * 8 if number else size
        if not 0 < step < FURTHEST:
            return True
        at += step
    return False
