"""What a format does: it opens a group of a source. What is taken from groups is the same for all formats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import MappingProxyType
from typing import Any

from intarsia.archives.cf import load_values, with_strings
from intarsia.archives.parsed_file import ParsedFile, ParsedVariable, ParseRequest, roles
from intarsia.archives.source_files import Sources
from intarsia.errors import IngestError


class UnreadableError(IngestError):
    """A variable cannot be read, or what a link leads to; the others can."""


class SourceGroup(ABC):
    """One group of an open source."""

    variables: Mapping[str, ParsedVariable]
    """Its variables, of which nothing was read yet."""

    attrs: Mapping[str, Any] = MappingProxyType({})
    unreadable: Mapping[str, str] = MappingProxyType({})
    """Variables that cannot be described, and why. To ask for one by its name is an error."""

    @abstractmethod
    def reference(self, variable: ParsedVariable) -> ParsedVariable:
        """A data variable with the ranges of its chunks, or with the reason why only a copy will do."""

    @abstractmethod
    def array(self, name: str) -> Any:
        """The stored numbers of a variable, by its name in the file, to be read in slices."""

    def load(self, variable: ParsedVariable) -> Any:
        """All values of a variable."""
        return load_values(self.array(variable.name), variable)

    def groups(self) -> dict[str, bool]:
        """The paths of all groups below, from the root of the source, and whether each holds variables."""
        return {}


class Format(ABC):
    """Reads one kind of source. A format of its own says how to open a group."""

    name: str
    """The kind of file, in a word."""

    @abstractmethod
    def open(
        self, url: str, sources: Sources, *, whole_tree: bool = False
    ) -> AbstractContextManager[SourceGroup]:
        """The group that was chosen; with `whole_tree`, the groups above and below are read, too."""

    def parse(self, url: str, sources: Sources, request: ParseRequest) -> ParsedFile:
        """The wanted variables of one source."""
        with self.open(url, sources, whole_tree=request.whole_tree) as group:
            now = dict(request.rename)
            unreadable = {now.get(name, name): why for name, why in group.unreadable.items()}
            for name in (*request.dims, *(request.variables or ()), *request.load):
                if name in unreadable:
                    raise IngestError(f"its variable {name!r} cannot be read: {unreadable[name]}")
            described = with_strings(request.renamed(group.variables), request)
            taken, left_out, new_dims = roles(described, request)
            left_out |= unreadable
            variables: dict[str, ParsedVariable] = {}
            for name, role in taken.items():
                variable = described[name]
                variable.role = role
                try:
                    if role == "data":
                        variable = group.reference(variable)
                    else:
                        variable.values = group.load(variable)
                        variable.dtype = variable.values.dtype
                except UnreadableError as error:
                    if name in (*request.dims, *(request.variables or ()), *request.load):
                        raise IngestError(f"its variable {name!r} cannot be read: {error}") from error
                    left_out[name] = str(error)
                else:
                    variables[name] = variable
            groups = {} if "data" in taken.values() else group.groups()
            return ParsedFile(
                url,
                sources.identity(url),
                self.name,
                variables,
                dict(group.attrs),
                left_out,
                new_dims,
                tuple(path for path, has_variables in groups.items() if has_variables),
            )

    def groups(self, url: str, sources: Sources) -> list[str]:
        """The paths of all groups."""
        with self.open(url, sources) as group:
            return ["", *group.groups()]

    @contextmanager
    def opened(self, url: str, sources: Sources, name: str) -> Iterator[Any]:
        """A variable's stored numbers, to be read in slices, for a copy."""
        with self.open(url, sources) as group:
            yield group.array(name)
