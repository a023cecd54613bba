"""An array whose every chunk is a TIFF picture: written by zarr, opened by tifffile, read back by zarr."""

from pathlib import Path

import numpy as np
import tifffile
import zarr
from zarr.codecs import BytesCodec, ZstdCodec

import intarsia

OUTPUT = Path("demo-output")
TILE = (256, 256)


def picture() -> np.ndarray:
    """A smooth interference pattern in 256 shades of 16-bit grey."""
    y, x = np.mgrid[0:512, 0:768] / 60
    waves = np.sin(x * x + y) + np.cos(y * y - x) + 2
    return (waves * 63).astype("uint16") * 256


def main() -> None:
    data = picture()
    print(f"{'codecs':<28} {'chunk file':<10} {'bytes':>8}  read by tifffile")
    for name, compression, compressors in (("plain", "none", []), ("zstd", "zstd", [ZstdCodec(level=9)])):
        path = OUTPUT / f"{name}.zarr"
        header = intarsia.codecs.tiff_header(TILE, data.dtype, compression=compression)
        pad = intarsia.codecs.PadCodec(location="start", nbytes=len(header), padding_func=header)
        z = zarr.create(
            store=path,
            shape=data.shape,
            chunks=TILE,
            dtype=data.dtype,
            codecs=[BytesCodec(endian="little"), *compressors, pad],
            overwrite=True,
        )
        z[:] = data
        for i, j in np.ndindex(2, 3):
            tile = data[i * 256 : (i + 1) * 256, j * 256 : (j + 1) * 256]
            file = path / "c" / str(i) / str(j)
            same = np.array_equal(tifffile.imread(file), tile)
            chain = " + ".join(["bytes", *(c.to_dict()["name"] for c in compressors), "pad"])
            print(f"{chain:<28} {'/'.join(file.parts[-3:]):<10} {file.stat().st_size:>8}  {same}")
        assert np.array_equal(zarr.open_array(path)[:], data)
    tifffile.imwrite(OUTPUT / "picture.tif", data)
    print(
        f"The whole picture: {OUTPUT / 'picture.tif'}; every chunk file above opens in an image viewer too."
    )


if __name__ == "__main__":
    main()
