"""The formats of source files: one file a format. To add one, see `Format` in `intarsia.archives.parse`."""
