"""All groups of files as a tree of datasets: which groups there are, and those without data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from intarsia.archives.cf import clean
from intarsia.archives.ingest_report import words_of_refused
from intarsia.archives.parse import format_of, reason_of, words_of_nothing
from intarsia.archives.write_plan import write_joined, write_plain
from intarsia.errors import IngestError
from intarsia.logical.hierarchy import joined_path, open_group

if TYPE_CHECKING:
    from intarsia.archives.locations import Sources
    from intarsia.archives.parsed_file import ParsedFile, Want
    from intarsia.archives.plan.ingest_plan import Draft

ALL = "*"
"""The `source_group` that means every group in the files."""


@dataclass(frozen=True)
class Bare:
    """A group without data along the dimensions: only attributes, coordinates and the like."""

    path: str
    """Its path in the files."""

    file: ParsedFile
    """Its content in the first file that has it."""

    def write(self, store: Any, above: str, drafts: Mapping[str, Draft]) -> None:
        """Write it below the group `above`; axes that grow are those of a dataset below it."""
        group = open_group(store, joined_path(above, self.path), "a")
        if not group.attrs:
            group.update_attributes(clean(self.file.attrs))
        for name, variable in self.file.variables.items():
            if variable.role == "joined":
                below = (
                    d for path, d in drafts.items() if f"{path}/".startswith(f"{self.path}/".lstrip("/"))
                )
                grown = next((draft.joined[name] for draft in below if name in draft.joined), None)
                if grown is not None:
                    write_joined(group, name, grown)
            elif name not in group:
                values = variable.loaded
                write_plain(group, name, values, variable.dims, variable.attrs, values.shape)


@dataclass
class Groups:
    """The groups of files: those with data along the dimensions, and those without."""

    with_data: dict[str, list[str]]
    """The files that have a group with data, by its path."""

    bare: list[Bare]

    unreadable: dict[str, str] = field(default_factory=dict)
    """Files that cannot be read, and why."""

    @classmethod
    def of(cls, urls: Sequence[str], sources: Sources, want: Want, parser: Any) -> Groups:
        """The groups of these files."""
        having: dict[str, list[str]] = {}
        firsts: dict[str, ParsedFile] = {}
        unreadable: dict[str, str] = {}
        for url in urls:
            try:
                paths = _groups_in(url, sources, parser)
                more = {
                    path: _parsed(url, path, sources, want, parser) for path in paths if path not in firsts
                }
            except Exception as error:
                unreadable[url] = reason_of(error)
                continue
            firsts |= more
            for path in paths:
                having.setdefault(path, []).append(url)
        along = set(want.dims)
        has_axes = any(set(file.new_dims) != along for file in firsts.values())
        with_data: dict[str, list[str]] = {}
        bare = []
        for path, file in firsts.items():
            lacks_axes = has_axes and set(file.new_dims) == along
            names = [name for name, variable in file.variables.items() if variable.role == "data"]
            if names and not lacks_axes:
                with_data[path] = having[path]
            else:
                loading = replace(want, load=(*want.load, *names))
                bare.append(Bare(path, _parsed(file.url, path, sources, loading, parser) if names else file))
        return cls(with_data, bare, unreadable)

    def words_of_no_data(self, urls: Sequence[str]) -> str:
        """Why nothing can be ingested: what is wrong with files, and with variables of the groups."""
        if self.unreadable:
            return words_of_refused(self.unreadable, len(urls))
        left_out = left_out_of(self.bare)
        url = self.bare[0].file.url if self.bare else urls[0]
        return f"{url}: {words_of_nothing(left_out)}"


def left_out_of(groups: Iterable[Bare]) -> dict[str, str]:
    """Variables of groups without data that are not taken, by path, and why."""
    return {
        joined_path(group.path, name): why for group in groups for name, why in group.file.left_out.items()
    }


def _groups_in(url: str, sources: Sources, parser: Any) -> list[str]:
    format: Any = format_of(url, sources, parser)
    if not hasattr(format, "groups"):
        raise IngestError(f"the parser {type(format).__name__} does not say which groups it has")
    paths: list[str] = format.groups(url, sources)
    return paths


def _parsed(url: str, path: str, sources: Sources, want: Want, parser: Any) -> ParsedFile:
    found = format_of(url, sources, parser, path).parse(url, sources, replace(want, group=path))
    for variable in found.variables.values():
        if variable.role == "joined" and not set(variable.dims) & set(want.dims):
            variable.role = "static"
    return found
