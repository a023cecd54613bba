"""The reader in JavaScript: its own tests, its types, Icechunk, and all vectors in a real browser."""

import json

import numpy as np
import pytest
from standard.vectors.unpack import unpack

import intarsia
from tests.inspect.browser import Browser, executable
from tests.inspect.zarrita import PAGE, Quiet, serving_files
from tests.standard import javascript


def test_its_own_tests_pass():
    tests = sorted((javascript.JS / "test").glob("*.test.js"))
    printed = javascript.node("--test", "--test-reporter=tap", *tests)
    assert "# fail 0" in printed
    assert "# pass 0" not in printed


def test_its_types_are_right():
    javascript.modules()
    javascript.run([str(javascript.JS / "node_modules" / ".bin" / "tsc"), "--project", "."])


def test_it_names_no_registry_and_no_locked_packages():
    package = json.loads((javascript.JS / "package.json").read_text())
    assert set(package["dependencies"]) == {"zarrita"}
    assert "package-lock=false" in (javascript.JS / ".npmrc").read_text()
    assert not (javascript.JS / "package-lock.json").exists()
    assert "http" not in (javascript.JS / "package.json").read_text()


READ = """
import * as icechunk from "@earthmover/icechunk";
import { DirectoryStore } from "./src/directory.js";
import { repositoryStore } from "./src/icechunk.js";
import { open } from "./src/index.js";

const [path, version] = process.argv.slice(-2);
const store = await repositoryStore(icechunk, new DirectoryStore(path), JSON.parse(version));
const { data, shape } = await (await open(store, "/group/field")).get();
console.log(JSON.stringify({ data: Array.from(data), shape }));
process.exit(0); // the threads of WebAssembly would go on
"""


def test_it_reads_versions_of_logical_arrays_in_icechunk(tmp_path):
    javascript.modules(icechunk=True)
    values = np.arange(66, dtype="f4").reshape(11, 6)
    repo = intarsia.open_repository(tmp_path / "repo", create=True)
    with intarsia.transaction(repo, message="first") as tx:
        array = tx.create("group/field", shape=(0, 6), chunks=(2, 3), dtype="f4")
        array.append(values[:5], codecs=["zstd"])
    first = next(iter(repo.ancestry(branch="main"))).id
    shuffled = [{"name": "shuffle", "configuration": {"element_size": 4}}, "gzip"]
    codec = intarsia.codecs.ConditionalCodec(codecs=shuffled, decision="always_apply")
    intarsia.append(repo, "group/field", values[5:], codecs=[codec])
    for version, wanted in (({"branch": "main"}, values), ({"snapshotId": first}, values[:5])):
        arguments = ["--no-warnings", "--input-type=module", "--eval", READ, "--"]
        printed = javascript.node(*arguments, tmp_path / "repo", json.dumps(version))
        found = json.loads(printed)
        np.testing.assert_array_equal(np.array(found["data"], "f4").reshape(found["shape"]), wanted)


class Lasting(Quiet):
    """Thousands of requests, over a few connections."""

    protocol_version = "HTTP/1.1"


READ_DIRECTORY = """
import { DirectoryStore } from "./src/directory.js";
import { open } from "./src/index.js";

const [path, ...names] = process.argv.slice(-4);
const found = {};
for (const name of names) {
  const { data, shape } = await (await open(new DirectoryStore(path), `/${name}`)).get();
  found[name] = { data: Array.from(data, (value) => (Number.isNaN(value) ? "NaN" : value)), shape };
}
console.log(JSON.stringify(found));
"""


def test_it_reads_what_intarsia_writes_with_real_compressors(tmp_path):
    rng = np.random.default_rng(0)
    values = np.where(rng.random((60, 40)) < 0.2, rng.normal(size=(60, 40)), 0).astype("f4")
    field = intarsia.create(tmp_path, "field", shape=(0, 40), chunks=(7, 16), dtype="f4", fill_value=np.nan)
    shuffled = {"name": "shuffle", "configuration": {"element_size": 4}}
    chosen = intarsia.codecs.ConditionalCodec(codecs=[shuffled, "zstd", "gzip"], decision="smallest")
    blosc = {"name": "blosc", "configuration": {"cname": "zstd", "shuffle": "bitshuffle", "typesize": 4}}
    for i, codecs in enumerate((["gzip"], [blosc], [chosen, "crc32c"], ["zstd"], [])):
        field.append(values[12 * i : 12 * (i + 1)], codecs=codecs)
    field.resize((64, 40))

    packed = intarsia.create(tmp_path, "packed", shape=(30, 8), chunks=(10, 8), dtype="f8", fill_value=-1.0)
    wanted = np.full((30, 8), -1.0)
    for i, scale in enumerate((0.01, 0.003)):
        packing = intarsia.Packing("int16", scale=scale, offset=273.15, missing=-32768)
        part = packing.decode(rng.integers(-32768, 32767, (10, 8), dtype="int16"))
        part[0, i] = np.nan
        packed.add_region(((20 * i, 20 * i + 10), (0, 8)), codecs=["zstd"], data=part, packing=packing)
        wanted[20 * i : 20 * i + 10] = part

    nullable = intarsia.nullable.create_array(
        tmp_path, "nullable", shape=(9, 5), chunks=(4, 4), dtype="int32"
    )
    nullable[...] = np.ma.masked_less(rng.integers(-50, 50, (9, 5)), 0)

    arguments = ["--no-warnings", "--input-type=module", "--eval", READ_DIRECTORY, "--"]
    found = json.loads(javascript.node(*arguments, tmp_path, "field", "packed", "nullable"))
    for name, expected in (("field", field[...]), ("packed", wanted)):
        data = np.array([float(value) for value in found[name]["data"]]).astype(expected.dtype)
        np.testing.assert_array_equal(data.reshape(found[name]["shape"]), expected)
    listed = [None if e is np.ma.masked else [int(e)] for e in nullable[...].reshape(-1)]
    assert found["nullable"] == {"data": listed, "shape": [9, 5]}


def site(folder):
    """The address of a page that can import the reader, beside the vectors."""
    modules = javascript.modules()
    (folder / "index.html").write_text(PAGE.replace("/node_modules/", "/js/node_modules/"))
    (folder / "js").symlink_to(modules.parent)
    unpack(folder / "vectors")
    return serving_files(folder, Lasting)


SHARES = 3
"""Thousands of requests take a busy machine minutes: in parts, none comes near the limit of a test.

`make test` reads one part here, and all vectors by the same reader in node (see test_vectors.py).
"""

VECTORS = """(async (share, shares) => {
  const { problem } = await import("/js/test/compare.js");
  const { parse } = await import("/js/src/json.js");
  const { FetchStore } = await import("zarrita");
  const base = new URL("/vectors/", location.href).href;
  const textOf = async (name) => (await fetch(base + name)).text();
  const { cases: all } = JSON.parse(await textOf("index.json"));
  const cases = all.filter((_, i) => i % shares === share);
  const found = {};
  const check = async (vector) => {
    const expected = async () => parse(await textOf(`${vector.path}/expected.json`));
    const wrong = await problem({ ...vector, expected }, new FetchStore(`${base}${vector.path}/zarr`));
    if (wrong) found[vector.path] = wrong;
  };
  for (let i = 0; i < cases.length; i += 8) await Promise.all(cases.slice(i, i + 8).map(check));
  return { found, count: cases.length };
})"""


@pytest.mark.parametrize(
    "share", [pytest.param(i, marks=pytest.mark.torture if i else ()) for i in range(SHARES)]
)
def test_it_reads_all_vectors_in_a_browser(share, tmp_path):
    executable()  # skips first where there is no browser
    with site(tmp_path) as address:
        browser = Browser()
        try:
            browser.open(address)
            read = browser.run(f"{VECTORS}({share}, {SHARES})")
            assert read["found"] == {}
            assert read["count"] > 400 / SHARES
            assert all(url.startswith(address) for url in browser.requests)
        finally:
            browser.close()
