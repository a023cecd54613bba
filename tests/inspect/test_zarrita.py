"""A member in a stranger's hands: zarrita, in a real browser, reads what intarsia stored."""

import json

import numpy as np

import intarsia
from tests.inspect.browser import Browser
from tests.inspect.zarrita import READ, site


def test_zarrita_reads_every_member_in_a_browser(tmp_path):
    with site(tmp_path) as address:
        values = np.random.default_rng(0).normal(size=(30, 8)).round(2).astype("f4")
        array = intarsia.create(tmp_path / "data.zarr", "field", shape=(0, 8), chunks=(5, 4), dtype="f4")
        for i, codecs in enumerate((["gzip"], ["zstd"], [])):
            array.append(values[10 * i : 10 * (i + 1)], codecs=codecs)
        browser = Browser()
        try:
            browser.open(address)
            for region in array.regions:
                read = browser.run(READ % json.dumps(f"data.zarr/field/{region.name}/"))
                got = np.array(read["data"], dtype="f4").reshape(read["shape"])
                (a, b), _ = region.bounds
                np.testing.assert_array_equal(got, values[a:b])
        finally:
            browser.close()
