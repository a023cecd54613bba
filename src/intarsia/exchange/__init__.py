"""To and from Zarr as others have it: arrays converted, adopted as regions, exported."""
