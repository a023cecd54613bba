"""Commands that show arrays over HTTP: `serve`, `view`."""

import sys
import threading
import webbrowser
from typing import Annotated, Any

import typer

import intarsia
from intarsia.array.hierarchy import logical_arrays
from intarsia.cli import arguments as args
from intarsia.cli import spelling
from intarsia.cli.stores import NamedStore
from intarsia.cli.verb import CommandError, print_json, say, show_table, verb

ServedPath = Annotated[
    str,
    typer.Argument(metavar="PATH", help="One array or group; everything if left out.", show_default=False),
]
ServedPort = Annotated[
    int | None,
    typer.Option("--port", min=0, max=65535, show_default="8000, or any free port if that is taken"),
]


@verb
def serve(
    asked: args.Reading,
    path: ServedPath = "",
    host: Annotated[
        str, typer.Option("--host", help="Where to listen; 0.0.0.0 lets other machines read.")
    ] = "127.0.0.1",
    port: ServedPort = None,
    codec: args.Codec = None,
    chunks: Annotated[
        str | None,
        typer.Option("--chunks", metavar="N,N,…", help="Chunks of the served array, if PATH is an array."),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            "--cors",
            metavar="ORIGIN",
            help="A web site whose pages may read it, in browsers; '*' for all. Repeated. None if left out.",
        ),
    ] = None,
    as_json: args.Json = False,
) -> None:
    """Serve arrays over HTTP until Ctrl-C: every logical array is one ordinary Zarr array there.

    In a browser, the address is the page of `intarsia view`. Nothing can be written. Chunks are encoded when
    they are asked for, with fast zstd unless --codec says otherwise. Of a repository, one version is served;
    what is committed later does not show.

    Example: intarsia serve data/store temperature --port 8000
    """
    place = NamedStore.find(asked)
    opened = place.store()
    chosen: Any = spelling.parse_codec_list(codec)
    if chosen == "auto":
        raise CommandError("codec 'auto' is for data that is stored; name the codecs, or none for fast zstd")
    inside = path.strip("/")
    shown = [intarsia.open(opened, name) for name in logical_arrays(opened, inside)]
    options = {"codecs": chosen, "chunks": spelling.parse_sizes(chunks, "chunks"), "cors_origins": cors or ()}
    with _serving(place, inside, host=host, port=port, **options) as server:
        names = [array.path.removeprefix(inside).strip("/") for array in shown]
        urls = [f"{server.url}/{name}".rstrip("/") for name in names]
        if as_json:
            arrays = [
                {"path": array.path, "url": url, "shape": list(array.shape), "dtype": str(array.dtype)}
                for array, url in zip(shown, urls, strict=True)
            ]
            print_json(store=asked.store, path=inside, url=server.url, arrays=arrays)
        else:
            say(f"{asked.store} {inside}".strip() + f" is served at {server.url}")
            rows = [
                (url, str(array.shape), str(array.dtype), str(array.chunks))
                for array, url in zip(shown, urls, strict=True)
            ]
            show_table(("Array", "Shape", "Data type", "Lattice"), rows)
            say("In a browser it is a page to look at them. Ctrl-C ends it.")
        sys.stdout.flush()  # whoever started it waits for the address
        threading.Event().wait()


@verb
def view(
    asked: args.Reading,
    path: ServedPath = "",
    port: ServedPort = None,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in the browser of this machine.")
    ] = True,
    as_json: args.Json = False,
) -> None:
    """Look at arrays in a browser until Ctrl-C: slices, values, regions, files, versions, series.

    The page reads only what it shows, from a server that only this machine can reach.

    Example: intarsia view data/store temperature
    """
    place = NamedStore.find(asked)
    inside = path.strip("/")
    with _serving(place, inside, port=port) as server:
        if as_json:
            print_json(store=asked.store, path=inside, url=server.url)
        else:
            say(f"{asked.store} {inside}".strip() + f" is at {server.url}", "Ctrl-C ends it.")
        sys.stdout.flush()
        if browser:
            # Not in this thread: a Ctrl-C while a process object is taken apart would be lost.
            threading.Thread(target=webbrowser.open, args=(server.url,), daemon=True).start()
        threading.Event().wait()


def _serving(place: NamedStore, path: str, *, port: int | None, **options: Any) -> Any:
    """The server of a store, with the history of a repository up to the version that is asked for."""
    shown = place.store() if place.repo is None else place.repo
    if place.repo is not None:
        options["snapshot_id"] = place.session().snapshot_id
    try:
        return intarsia.serving(shown, path, port="auto" if port is None else port, **options)
    except OSError as error:
        if isinstance(error, intarsia.IntarsiaError) or error.strerror is None:
            raise
        raise CommandError(error.strerror) from error
