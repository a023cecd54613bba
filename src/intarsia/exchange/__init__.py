"""To and from other people's Zarr: arrays are converted, adopted as regions, exported."""
