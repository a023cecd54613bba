"""All groups of files as a tree of datasets: which groups there are, and those without data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from intarsia.archives.cf import json_attributes
from intarsia.archives.ingest_report import refusal_text
from intarsia.archives.parse import failure_text, format_of, no_variables_text
from intarsia.archives.plan.coordinates import PlainArray
from intarsia.archives.write_plan import write_plain
from intarsia.errors import IngestError
from intarsia.logical.hierarchy import joined_path, open_group

if TYPE_CHECKING:
    from intarsia.archives.parsed_file import ParsedFile, ParseRequest
    from intarsia.archives.plan.ingest_plan import IngestPlan
    from intarsia.archives.source_files import Sources

ALL = "*"
"""The `source_group` that means every group in the files."""


@dataclass
class Groups:
    """The groups of files: those with data along the dimensions, and those without."""

    with_data: dict[str, list[str]]
    """The files that have a group with data, by its path."""

    without_data: dict[str, ParsedFile]
    """Groups with only attributes, coordinates and the like, by path: what the first file has of each."""

    unreadable: dict[str, str] = field(default_factory=dict)
    """Files that cannot be read, and why."""

    @classmethod
    def of(cls, urls: Sequence[str], sources: Sources, request: ParseRequest) -> Groups:
        """The groups of these files."""
        having: dict[str, list[str]] = {}
        firsts: dict[str, ParsedFile] = {}
        unreadable: dict[str, str] = {}
        for url in urls:
            try:
                paths = format_of(url, sources, request).groups(url, sources)
                more = {
                    path: _parsed(url, sources, replace(request, group=path))
                    for path in paths
                    if path not in firsts
                }
            except Exception as error:
                unreadable[url] = failure_text(error)
                continue
            firsts |= more
            for path in paths:
                having.setdefault(path, []).append(url)
        along = set(request.dims)
        has_axes = any(set(file.new_dims) != along for file in firsts.values())
        with_data: dict[str, list[str]] = {}
        without_data = {}
        for path, file in firsts.items():
            lacks_axes = has_axes and set(file.new_dims) == along
            names = [name for name, variable in file.variables.items() if variable.role == "data"]
            if names and not lacks_axes:
                with_data[path] = having[path]
            else:
                loading = replace(request, group=path, load=(*request.load, *names))
                without_data[path] = _parsed(file.url, sources, loading) if names else file
        groups = cls(with_data, without_data, unreadable)
        if not with_data:
            nothing = {file.url: no_variables_text(groups.left_out) for file in list(firsts.values())[:1]}
            raise IngestError(refusal_text(unreadable or nothing, len(urls)))
        return groups

    @property
    def left_out(self) -> dict[str, str]:
        """Variables of groups without data that are not taken, by path, and why."""
        return {
            joined_path(path, name): why
            for path, file in self.without_data.items()
            for name, why in file.left_out.items()
        }

    def write_without_data(self, store: Any, above: str, plans: Mapping[str, IngestPlan]) -> None:
        """Write groups without data below the group `above`; axes that grow are those of datasets below."""
        for path, file in self.without_data.items():
            group = open_group(store, joined_path(above, path), "a")
            if not group.attrs:
                group.update_attributes(json_attributes(file.attrs))
            below = [plan for own, plan in plans.items() if f"{own}/".startswith(f"{path}/".lstrip("/"))]
            for name, variable in file.variables.items():
                if variable.role == "concat":
                    grown = next((plan.plain[name] for plan in below if name in plan.plain), None)
                    if grown is not None:
                        write_plain(group, name, grown)
                elif name not in group:
                    write_plain(group, name, PlainArray(variable.dims, variable.attrs, variable.loaded))


def _parsed(url: str, sources: Sources, request: ParseRequest) -> ParsedFile:
    found = format_of(url, sources, request).parse(url, sources, request)
    for variable in found.variables.values():
        if variable.role == "concat" and not set(variable.dims) & set(request.dims):
            variable.role = "static"
    return found
