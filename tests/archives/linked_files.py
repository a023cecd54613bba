"""HDF5 files that show other files: links, virtual datasets, external storage; and what h5py reads from them.

`python -m tests.archives.linked_files FOLDER` ingests all of them, read in blocks instead of from memory, and
prints the name of each before it begins: if the process crashes, the last name says where.
"""

import sys
from collections.abc import Callable
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import xarray as xr

import intarsia
from intarsia.errors import IngestError

N = 8
STEPS = np.arange(N)
UNLIMITED = h5py.h5s.UNLIMITED


def virtual(file, name, *parts, shape=(N,), dtype="f4", fill=-1, maxshape=None):
    """A virtual dataset of parts: where each goes, and `VirtualSource`s."""
    layout = h5py.VirtualLayout(shape=shape, dtype=dtype, maxshape=maxshape)
    for place, source in parts:
        layout[place] = source
    file.create_virtual_dataset(name, layout, fillvalue=fill)


def source(file, name, shape=(N,), **more):
    return h5py.VirtualSource(file, name, shape=shape, **more)


def other(folder):
    """The file that others show."""
    with h5py.File(folder / "other.h5", "w") as file:
        file["data"] = np.arange(100, 100 + N, dtype="f4")
        file["x"] = np.arange(200, 200 + N, dtype="f4")
        file["g/x"] = np.arange(300, 300 + N, dtype="f4")
        file["grid"] = np.arange(N * 3, dtype="f4").reshape(N, 3)
        file.create_dataset("long", data=np.arange(N, dtype="f4"), maxshape=(None,), chunks=(2,))
        for kind in ("i2", "u1", "f8", "bool"):
            file[kind] = np.arange(N).astype(kind)
        file["soft"] = h5py.SoftLink("/data")
        file["back"] = h5py.ExternalLink("main.h5", "/own")
        file["further"] = h5py.ExternalLink("third.h5", "/x")
        virtual(file, "nested", (np.s_[:], source("third.h5", "x")))
    with h5py.File(folder / "third.h5", "w") as file:
        file["x"] = np.arange(400, 400 + N, dtype="f4")
    (folder / "raw").write_bytes(np.arange(500, 500 + N, dtype="<f4").tobytes())
    (folder.parent / "secret").write_bytes(b"S" * 64)


CASES = {}
"""What makes each file, and what is expected of it."""


@dataclass(frozen=True)
class Case:
    build: Callable
    outside: tuple = ()
    """The words that say why `x` is not read if other files are in a folder above; none if it is."""

    inside: tuple = ()
    """The words that say why `x` is not read even if they are in the same folder, or authorised."""

    absent: str = ""
    """The source of `x` that does not exist, so that HDF5 shows the fill value."""


def case(name, *outside, **expected):
    def note(build):
        CASES[name] = Case(build, outside, **expected)
        return build

    return note


for where in ("other.h5", "{folder}/other.h5"):
    tag = "absolute" if "folder" in where else "relative"
    for kind, inner in (("absent", "data"), ("own_name", "own"), ("self", "x"), ("group", "g/x")):

        @case(f"virtual_{tag}_{kind}", "other.h5", absent="'own' in" if inner == "own" else "")
        def _(file, folder, where=where, inner=inner):
            virtual(file, "x", (np.s_[:], source(where.format(folder=folder), inner)))

    for inner in ("/data", "/x", "/own", "/g", "/soft", "/nothing", "/further", "/nested"):
        why = {"/g": ("group", "source_group='x'")}.get(
            inner, (inner,) if inner in ("/own", "/nothing") else ()
        )

        @case(f"external_link_{tag}_{inner[1:]}", "other.h5", inner, inside=why)
        def _(file, folder, where=where, inner=inner):
            file["x"] = h5py.ExternalLink(where.format(folder=folder), inner)


for kind in ("i2", "u1", "f8", "bool"):

    @case(f"virtual_{kind}", "other.h5")
    def _(file, folder, kind=kind):
        virtual(file, "x", (np.s_[:], source("other.h5", kind, dtype=kind)), dtype=kind, fill=0)


PARTS = {
    "strided": [(np.s_[::2], source("other.h5", "data")[:4]), (np.s_[1::2], source("other.h5", "x")[4:])],
    "halves": [(np.s_[:4], source("other.h5", "data")[4:]), (np.s_[4:], source("third.h5", "x")[:4])],
    "partial": [(np.s_[2:5], source("other.h5", "data")[:3])],
    "column": [(np.s_[:], source("other.h5", "grid", (N, 3))[:, 1])],
    "missing_file": [(np.s_[:], source("gone.h5", "data"))],
    "missing_dataset": [(np.s_[:], source("other.h5", "gone"))],
    "nested": [(np.s_[:], source("other.h5", "nested"))],
    "through_a_link": [(np.s_[:], source("other.h5", "further"))],
    "main_by_name": [(np.s_[:], source("main.h5", "own"))],
    "main_by_path": [(np.s_[:], source("./main.h5", "x"))],
    "own_and_other": [(np.s_[:4], source(".", "own")[:4]), (np.s_[4:], source("other.h5", "x")[4:])],
}
OF_ITSELF = {"nested": ("virtual itself",), "main_by_path": ("virtual itself",)}
ABSENT = {"missing_file": "'data' in gone.h5", "missing_dataset": "'gone' in other.h5"}
for kind, parts in PARTS.items():
    paths = [part.path for _, part in parts if part.path in ("other.h5", "third.h5")]

    @case(f"virtual_{kind}", *paths[:1], inside=OF_ITSELF.get(kind, ()), absent=ABSENT.get(kind, ""))
    def _(file, folder, parts=parts):
        virtual(file, "x", *parts)


OWN = {
    "whole": [(np.s_[:], source(".", "own"))],
    "strided": [(np.s_[::2], source(".", "own")[:4])],
    "two": [(np.s_[:4], source(".", "own")[4:]), (np.s_[4:], source(".", "own2")[:4])],
    "missing": [(np.s_[:], source(".", "gone"))],
    "through_a_soft_link": [(np.s_[:], source(".", "soft"))],
}
for kind, parts in OWN.items():

    @case(f"virtual_of_own_{kind}", absent="'gone' in the file" if kind == "missing" else "")
    def _(file, folder, parts=parts):
        file["own2"], file["soft"] = np.arange(30, 30 + N, dtype="f4"), h5py.SoftLink("/own")
        virtual(file, "x", *parts)


@case("virtual_of_own_twice", inside=("'w'", "virtual itself"))
def _(file, folder):
    virtual(file, "w", (np.s_[:], source(".", "own")))
    virtual(file, "x", (np.s_[::2], source(".", "w")[:4]))


@case("virtual_of_own_of_other", "'w'", inside=("'w'", "virtual itself"))
def _(file, folder):
    virtual(file, "w", (np.s_[:], source("other.h5", "x")))
    virtual(file, "x", (np.s_[:], source(".", "w")))


@case("virtual_of_own_through_external_link", "other.h5")
def _(file, folder):
    file["there"] = h5py.ExternalLink("other.h5", "/g")
    virtual(file, "x", (np.s_[:], source(".", "there/x")))


@case("virtual_of_own_external_storage", inside=("secret",))
def _(file, folder):
    file.create_dataset("w", (N,), "f4", external=[(str(folder.parent / "secret"), 0, 4 * N)])
    virtual(file, "x", (np.s_[:], source(".", "w")))


@case("virtual_of_itself", inside=("virtual itself",))
def _(file, folder):
    virtual(file, "x", (np.s_[:], source(".", "x")))


@case("virtual_in_a_circle", inside=("virtual itself",))
def _(file, folder):
    virtual(file, "w", (np.s_[:], source(".", "x")))
    virtual(file, "x", (np.s_[:], source(".", "w")))


@case("virtual_series_of_files", "series", inside=("series",))
def _(file, folder):
    for part in range(2):
        with h5py.File(folder / f"part-{part}.h5", "w") as piece:
            piece["x"] = np.full(4, part, "f4")
    series(file, b"part-%b.h5", b"x")


@case("virtual_series_of_own", "series", inside=("series",))
def _(file, folder):
    for part in range(2):
        file[f"w{part}"] = np.full(4, part, "f4")
    series(file, b".", b"w%b")


def series(file, name, dataset):
    """A virtual dataset of as many blocks of four as there are."""
    place = h5py.h5s.create_simple((N,), (UNLIMITED,))
    place.select_hyperslab((0,), (UNLIMITED,), stride=(4,), block=(4,))
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_virtual(place, name, dataset, h5py.h5s.create_simple((4,)))
    h5py.h5d.create(file.id, b"x", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((N,), (UNLIMITED,)), plist)


for kind, inner in (("long", "long"), ("self", "x")):

    @case(f"virtual_unlimited_{kind}", "other.h5")
    def _(file, folder, inner=inner):
        whole = source("other.h5", inner, maxshape=(None,))
        virtual(file, "x", (np.s_[0:UNLIMITED], whole[0:UNLIMITED]), shape=(N,), maxshape=(None,))


@case("virtual_2d", "other.h5")
def _(file, folder):
    virtual(file, "x", (np.s_[:, :], source("other.h5", "grid", (N, 3))), shape=(N, 3))


@case("virtual_2d_of_own")
def _(file, folder):
    file["grid"] = np.arange(N * 3, dtype="f4").reshape(N, 3)
    virtual(file, "x", (np.s_[:, :2], source(".", "grid", (N, 3))[:, 1:]), shape=(N, 3))


@case("virtual_scalar", "other.h5")
def _(file, folder):
    virtual(file, "x", (np.s_[0:1], source("other.h5", "data")[3:4]), shape=(1,))


@case("virtual_scale_of_another_axis", "other.h5")
def _(file, folder):
    file["grid"] = np.arange(N * 3, dtype="f4").reshape(N, 3)
    virtual(file, "x", (np.s_[:], source("other.h5", "data")[:3]), shape=(3,))
    file["x"].make_scale("x")
    file["grid"].dims[1].attach_scale(file["x"])


for target in ("/own", "own", "/s1", "/group/inner", "/alias/inner", "./group//inner"):

    @case(f"soft_link_to_{target.replace('/', '|')}")
    def _(file, folder, target=target):
        file["s1"], file["s2"] = h5py.SoftLink("/s2"), h5py.SoftLink("own")
        file["group/inner"] = np.arange(40, 40 + N, dtype="f4")
        file["alias"] = h5py.SoftLink("/group")
        file["x"] = h5py.SoftLink(target)


for kind, target, outside, inside in (
    ("dangling", "/gone", (), ("/gone",)),
    ("circle", "/x", (), ("more than 16",)),
    ("to_external_link", "/there", ("other.h5",), ("group", "other.h5")),
    ("through_external_group", "/there/x", ("other.h5",), ()),
    ("to_virtual", "/w", ("third.h5",), ()),
):

    @case(f"soft_link_{kind}", *outside, inside=inside)
    def _(file, folder, target=target):
        file["there"] = h5py.ExternalLink("other.h5", "/g")
        virtual(file, "w", (np.s_[:], source("third.h5", "x")))
        file["x"] = h5py.SoftLink(target)


@case("hard_link")
def _(file, folder):
    file["x"] = file["own"]


@case("external_link_missing_file", inside=("gone.h5", "does not exist"))
def _(file, folder):
    file["x"] = h5py.ExternalLink("gone.h5", "/x")


@case("external_link_unicode", inside=("ä.h5", "does not exist"))
def _(file, folder):
    file["x"] = h5py.ExternalLink("ä.h5", "/ö")


@case("external_link_to_itself", inside=("more than 16",))
def _(file, folder):
    file["x"] = h5py.ExternalLink("main.h5", "/x")


@case("external_link_and_back")
def _(file, folder):
    file["x"] = h5py.ExternalLink("other.h5", "/back")


@case("external_link_to_own_file")
def _(file, folder):
    file["x"] = h5py.ExternalLink("main.h5", "/own")


RAW = {
    "inside": [("{folder}/raw", 0, 32)],
    "inside_by_name": [("raw", 0, 32)],
    "inside_in_pieces": [("{folder}/raw", 16, 16), ("{folder}/raw", 0, 16)],
    "inside_dots": [("{folder}/../{name}/raw", 0, 32)],
    "inside_without_end": [("{folder}/raw", 0, h5py.h5f.UNLIMITED)],
    "outside": [("{folder}/../secret", 0, 32)],
    "outside_by_name": [("../secret", 0, 32)],
    "outside_in_part": [("{folder}/raw", 0, 16), ("{folder}/../secret", 0, 16)],
    "outside_link": [("{folder}/secret", 0, 32)],
    "outside_offset": [("{folder}/../secret", 7, 32)],
    "missing": [("{folder}/gone", 0, 32)],
}
for kind, pieces in RAW.items():
    words = ("secret",) if "outside" in kind else ("gone",) if kind == "missing" else ()

    @case(f"external_storage_{kind}", *(words or ("raw",)), inside=words)
    def _(file, folder, pieces=pieces):
        if not (folder / "secret").is_symlink():
            (folder / "secret").symlink_to(folder.parent / "secret")
        named = [(name.format(folder=folder, name=folder.name), *rest) for name, *rest in pieces]
        file.create_dataset("x", (N,), "f4", external=named)


@case("external_storage_of_another_coordinate", inside=("secret",))
def _(file, folder):
    file.create_dataset("x", (2,), "f4", external=[(str(folder.parent / "secret"), 0, 8)])


def make(name, folder, below=""):
    """The file of a case, in a folder of its own, or below that."""
    (folder / below).mkdir(parents=True)
    other(folder)
    path = folder / below / "main.h5"
    with h5py.File(path, "w") as file:
        file["n"] = STEPS
        file["n"].make_scale("n")
        file["own"] = np.arange(10, 10 + N, dtype="f4")
        CASES[name].build(file, folder)
        for each in file:
            if isinstance(file.get(each, getlink=True), h5py.HardLink) and each not in ("n", "x"):
                attach(file, file[each])
        if isinstance(file.get("x", getlink=True), h5py.HardLink) and "itself" not in name:
            attach(file, file["x"])
    return path


def attach(file, item):
    if isinstance(item, h5py.Dataset) and item.shape and item.shape[0] == N:
        item.dims[0].attach_scale(file["n"])


def judged(name, folder, below="", **options):
    """What is wrong with an ingest of a file; empty if every value is h5py's or left out by name.

    The file is in a folder `below` that of the files that it shows, unless `below` is empty.
    """
    case, path = CASES[name], make(name, folder, below)
    is_outside = below and not options and case.outside
    words = case.outside if is_outside else case.inside
    with chdir(folder):  # where HDF5 looks for other files
        try:
            report = intarsia.ingest(path, "memory://", concat_dim="n", **options)
        except IngestError as error:
            is_named = "load" in options and words and all(word in str(error) for word in words)
            return "" if is_named else f"refused: {error}"
        why = report.left_out.get("x", "")
        if bool(words) != bool(why) or not all(word in why for word in words):
            return f"x is not named: {report.left_out}"
        absent = [drift.what for drift in report.drifts if drift.kind == "absent source"]
        if case.absent and not why and case.absent not in "".join(absent):
            return f"{case.absent} is not named: {absent}"
        with (
            xr.open_dataset(report.repository, engine="intarsia", mask_and_scale=False) as found,
            h5py.File(path) as file,
        ):
            names = [each for each in file if each not in report.left_out]
            datasets = {each for each in names if isinstance(file[each], h5py.Dataset)}
            if datasets - set(found.variables):
                return f"missing: {datasets - set(found.variables)}"
            unlike = [each for each in datasets if not np.array_equal(found[each].values, file[each][...])]
            return f"unlike h5py's: {unlike}" if unlike else ""


def main(folder):
    import intarsia.archives.source_files as source_files

    source_files.WHOLE_BYTES = 0
    problems = {}
    for name in CASES:
        print(name, flush=True)
        problem = judged(name, Path(folder) / name)
        if problem:
            problems[name] = problem
    sys.exit("\n".join(f"{name}: {why}" for name, why in problems.items()) or 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
