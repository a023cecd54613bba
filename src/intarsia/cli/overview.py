"""Commands that show a store as a whole: `ls`, `serve`, `view`."""

import threading
import webbrowser
from collections.abc import Iterator
from typing import Any

import intarsia
from intarsia.cli import arguments as args
from intarsia.cli.output import CommandError, Output
from intarsia.cli.stores import LS_COLUMNS, VersionToRead, listed
from intarsia.cli.verb import verb
from intarsia.display import Table
from intarsia.logical.hierarchy import logical_arrays
from intarsia.logical.logical_array import LogicalArray


@verb()
def ls(place: VersionToRead, path: args.AnyNode = "") -> Output:
    """List the arrays of a store: shape, data type, size in memory, regions; plain Zarr arrays too.

    Example: intarsia ls data/store --tag v1
    """
    arrays = listed(place.array_nodes(path))
    table = Table.of(arrays, LS_COLUMNS) if arrays else f"{place.store} holds no array"
    return Output(table, path=path.strip("/"), arrays=arrays)


@verb(intarsia.serve, cors_origins=args.OptionSyntax(kind=args.MANY, option="cors"))
def serve(
    place: VersionToRead, path: args.AnyNode = "", *, port: args.Port = None, **options: Any
) -> Iterator[Output]:
    """Serve arrays over HTTP until Ctrl-C: every logical array is one ordinary Zarr array there.

    In a browser, the address is the page of `intarsia view`. Nothing can be written. Chunks are encoded on
    request, with fast zstd unless --codec says otherwise. From a repository, one version is served; later
    commits do not show.

    Example: intarsia serve data/store temperature --port 8000

    Args:
        host (NAME): Where to listen; 0.0.0.0 lets other machines read.
        port (N): Port to listen on; 8000 if left out, or any free port if that is taken.
        codec (-c CODEC): A codec of the served arrays: a name, NAME:KEY=VALUE,… or a JSON object. Repeat it
            for several, in their order; 'raw' for none.
        chunks (N,N,…): Chunks of the served array, if PATH is an array.
        cors (ORIGIN): A web site whose pages may read it, in browsers; '*' for all. May be repeated.
    """
    store, inside = place.resolved.store, path.strip("/")
    with _start(place, inside, port=port, **options) as server:
        shown = [intarsia.open(store, name) for name in logical_arrays(store, inside)]

        def url(array: LogicalArray) -> str:
            return f"{server.url}/{array.path.removeprefix(inside).strip('/')}".rstrip("/")

        columns: dict[str, Any] = {"Array": url, "Shape": "shape", "Data type": "dtype", "Lattice": "chunks"}
        yield Output(
            f"{place.store} {inside}".strip() + f" is served at {server.url}",
            Table.of(shown, columns),
            "In a browser, it is a page that shows them. Ctrl-C stops it.",
            path=inside,
            url=server.url,
            arrays=[{"path": a.path, "url": url(a), "shape": a.shape, "dtype": a.dtype} for a in shown],
        )
        threading.Event().wait()


@verb()
def view(
    place: VersionToRead, path: args.AnyNode = "", *, port: args.Port = None, no_browser: bool = False
) -> Iterator[Output]:
    """Look at arrays in a browser until Ctrl-C: slices, values, regions, files, versions, series.

    The page reads only what it shows, from a server that only this machine can reach.

    Example: intarsia view data/store temperature

    Args:
        port (N): Port to listen on; 8000 if left out, or any free port if that is taken.
        no_browser: Only print the address of the page; do not open a browser.
    """
    inside = path.strip("/")
    with _start(place, inside, port=port) as server:
        where = f"{place.store} {inside}".strip() + f" is at {server.url}"
        yield Output(where, "Ctrl-C stops it.", path=inside, url=server.url)
        if not no_browser:
            # Not in this thread: a Ctrl-C while a process object is being destroyed would be lost.
            threading.Thread(target=webbrowser.open, args=(server.url,), daemon=True).start()
        threading.Event().wait()


def _start(place: VersionToRead, path: str, *, port: int | None, **options: Any) -> Any:
    """The server of a store, with the history of a repository up to the requested version."""
    place.node(path)  # raises an error that says what there is
    store, version = place.at_version()
    try:
        return intarsia.serve(store, path, port="auto" if port is None else port, **version, **options)
    except OSError as error:
        if isinstance(error, intarsia.IntarsiaError) or error.strerror is None:
            raise
        raise CommandError(error.strerror) from error
