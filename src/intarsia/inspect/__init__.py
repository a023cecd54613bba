"""What people look at: maps, notebook output, the report page, the server and its viewer.

- `survey` looks at an array once for everything here (`chunk_sizes`); `sample` looks at values.
- `drawing` draws; `region_map`, `heat_map` and `preview` are pictures; `page` and `write_report` the report.
- `server` serves arrays over HTTP; `viewer` answers the page in `viewer_assets/`.
"""
