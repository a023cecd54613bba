"""Commands about a store as a whole: `ls`, `tag`, `branch`, `serve`, `view`."""

import sys
import threading
import webbrowser
from typing import Annotated, Any

import icechunk
import typer
import zarr

import intarsia
from intarsia.cli import arguments as args
from intarsia.cli.stores import LS_COLUMNS, NamedStore, row_of
from intarsia.cli.verb import CommandError, print_json, say, show_table, verb
from intarsia.display import SHOWN_ROWS, count_text, names_text
from intarsia.errors import VersionNotFoundError
from intarsia.logical.hierarchy import logical_arrays
from intarsia.logical.logical_array import LogicalArray
from intarsia.versions.locking import commit_lock
from intarsia.versions.repository import explain_errors
from intarsia.versions.version import Version, find_snapshot

Delete = Annotated[bool, typer.Option("--delete", help="Remove it; its snapshot stays.")]
Which = Annotated[
    str,
    typer.Argument(
        metavar="VERSION", help="A snapshot's id, a tag, a branch or a time; the tip of main if left out.",
        show_default=False,
    ),
]  # fmt: skip


@verb
def ls(
    asked: args.Reading,
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH", help="Array or group to look at; everything if left out.", show_default=False
        ),
    ] = "",
    as_json: args.Json = False,
) -> None:
    """List the arrays of a store: shape, data type, size in memory, regions; plain Zarr arrays too.

    Example: intarsia ls data/store --tag v1
    """
    found = NamedStore.find(asked).found(path)
    if as_json:
        arrays: list[dict[str, Any]] = []
        for each in found:
            assert not isinstance(each.node, zarr.Group)
            logical = isinstance(each.node, LogicalArray)
            arrays.append(
                {
                    "path": each.path,
                    "kind": "logical" if logical else "plain",
                    "shape": list(each.node.shape),
                    "dtype": str(each.node.dtype),
                    "nbytes": each.node.nbytes,
                    "regions": len(each.node.manifest.regions) if logical else None,
                }
            )
        print_json(store=asked.store, path=path.strip("/"), arrays=arrays)
        return
    if not found:
        say(f"{asked.store} holds no array")
        return
    show_table(LS_COLUMNS, [row_of(each) for each in found])


@verb
def tag(
    asked: args.Existing,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The tag; all are listed if left out.")] = "",
    version: Which = "",
    delete: Delete = False,
    as_json: args.Json = False,
) -> None:
    """List tags, or give a version a name that stays: `tag STORE NAME [VERSION]`.

    Example: intarsia tag data/store v1 2024-05-01
    """
    repo = _repository(asked)
    with explain_errors(asked.store):
        if not name:
            _show_refs(
                {each: repo.lookup_tag(each) for each in sorted(repo.list_tags())}, "tags", asked, as_json
            )
            return
        if delete:
            _check_known(name, repo.list_tags(), "tag", asked.store)
            snapshot = repo.lookup_tag(name)
            with commit_lock(repo):
                repo.delete_tag(name)
        else:
            if name in repo.list_tags():
                raise CommandError(f"there is already a tag {name!r}: tags do not move; choose another name")
            snapshot = find_snapshot(repo, version) if version else repo.lookup_branch("main")
            with commit_lock(repo):
                repo.create_tag(name, snapshot)
    _say_done("tag", name, snapshot, delete, asked, as_json)


@verb
def branch(
    asked: args.Existing,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The branch; all are listed if left out.")] = "",
    version: Which = "",
    delete: Delete = False,
    as_json: args.Json = False,
) -> None:
    """List branches, or begin one at a version: `branch STORE NAME [VERSION]`.

    Example: intarsia branch data/store trial v1
    """
    repo = _repository(asked)
    with explain_errors(asked.store):
        if not name:
            tips = {each: repo.lookup_branch(each) for each in sorted(repo.list_branches())}
            _show_refs(tips, "branches", asked, as_json)
            return
        if delete:
            _check_known(name, repo.list_branches(), "branch", asked.store)
            if name == "main":
                raise CommandError("the branch main cannot be removed")
            snapshot = repo.lookup_branch(name)
            with commit_lock(repo):
                repo.delete_branch(name)
        else:
            if name in repo.list_branches():
                raise CommandError(f"there is already a branch {name!r}: choose another name")
            snapshot = find_snapshot(repo, version) if version else repo.lookup_branch("main")
            Version(snapshot_id=snapshot).session(repo)  # raises an error if it does not exist
            with commit_lock(repo):
                repo.create_branch(name, snapshot)
    _say_done("branch", name, snapshot, delete, asked, as_json)


def _repository(asked: args.Existing) -> icechunk.Repository:
    place = NamedStore.find(asked)
    if place.repo is None:
        raise CommandError(
            f"{asked.store} is a plain Zarr store, which has no versions; an Icechunk repository does"
        )
    return place.repo


def _check_known(name: str, known: Any, what: str, store: str) -> None:
    if name not in known:
        raise VersionNotFoundError(f"{store} has no {what} {name!r}: {names_text(name, sorted(known))}")


def _show_refs(refs: dict[str, str], what: str, asked: args.Existing, as_json: bool) -> None:
    if as_json:
        listed = [{"name": name, "snapshot_id": snapshot} for name, snapshot in refs.items()]
        print_json(store=asked.store, **{what: listed})
        return
    if not refs:
        say(f"{asked.store} has no {what}")
        return
    show_table(("Name", "Snapshot"), list(refs.items())[:SHOWN_ROWS])
    if len(refs) > SHOWN_ROWS:
        say(f"… and {count_text(len(refs) - SHOWN_ROWS, 'more', 'more')}")


def _say_done(
    what: str, name: str, snapshot: str, deleted: bool, asked: args.Existing, as_json: bool
) -> None:
    if as_json:
        print_json(store=asked.store, name=name, snapshot_id=snapshot, deleted=deleted)
        return
    say(f"{what} {name} {'removed; it was at' if deleted else 'is'} snapshot {snapshot}")


ServedPath = Annotated[
    str,
    typer.Argument(metavar="PATH", help="One array or group; everything if left out.", show_default=False),
]
ServedPort = Annotated[
    int | None,
    typer.Option(
        "--port",
        metavar="N",
        min=0,
        max=65535,
        help="Port to listen on.",
        show_default="8000, or any free port if that is taken",
    ),
]


@verb
def serve(
    asked: args.Reading,
    path: ServedPath = "",
    host: Annotated[
        str, typer.Option("--host", metavar="NAME", help="Where to listen; 0.0.0.0 lets other machines read.")
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
            help="A web site whose pages may read it, in browsers; '*' for all. May be repeated.",
        ),
    ] = None,
    as_json: args.Json = False,
) -> None:
    """Serve arrays over HTTP until Ctrl-C: every logical array is one ordinary Zarr array there.

    In a browser, the address is the page of `intarsia view`. Nothing can be written. Chunks are encoded on
    request, with fast zstd unless --codec says otherwise. From a repository, one version is served; later
    commits do not show.

    Example: intarsia serve data/store temperature --port 8000
    """
    place = NamedStore.find(asked)
    opened = place.store()
    chosen: Any = args.parse_codec_list(codec)
    if chosen == "auto":
        raise CommandError("codec 'auto' is for data that is stored; name the codecs, or none for fast zstd")
    inside = path.strip("/")
    place.node(inside)  # raises an error that says what there is
    shown = [intarsia.open(opened, name) for name in logical_arrays(opened, inside)]
    options = {"codecs": chosen, "chunks": args.parse_sizes(chunks, "chunks"), "cors_origins": cors or ()}
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
            say("In a browser, it is a page that shows them. Ctrl-C stops it.")
        sys.stdout.flush()  # whoever started it is waiting for the address
        threading.Event().wait()


@verb
def view(
    asked: args.Reading,
    path: ServedPath = "",
    port: ServedPort = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Only print the address of the page; do not open a browser.")
    ] = False,
    as_json: args.Json = False,
) -> None:
    """Look at arrays in a browser until Ctrl-C: slices, values, regions, files, versions, series.

    The page reads only what it shows, from a server that only this machine can reach.

    Example: intarsia view data/store temperature
    """
    place = NamedStore.find(asked)
    inside = path.strip("/")
    place.node(inside)  # raises an error that says what there is
    with _serving(place, inside, port=port) as server:
        if as_json:
            print_json(store=asked.store, path=inside, url=server.url)
        else:
            say(f"{asked.store} {inside}".strip() + f" is at {server.url}", "Ctrl-C stops it.")
        sys.stdout.flush()
        if not no_browser:
            # Not in this thread: a Ctrl-C while a process object is being destroyed would be lost.
            threading.Thread(target=webbrowser.open, args=(server.url,), daemon=True).start()
        threading.Event().wait()


def _serving(place: NamedStore, path: str, *, port: int | None, **options: Any) -> Any:
    """The server of a store, with the history of a repository up to the requested version."""
    shown = place.store() if place.repo is None else place.repo
    if place.repo is not None:
        options["snapshot_id"] = place.session().snapshot_id
    try:
        return intarsia.serve(shown, path, port="auto" if port is None else port, **options)
    except OSError as error:
        if isinstance(error, intarsia.IntarsiaError) or error.strerror is None:
            raise
        raise CommandError(error.strerror) from error
