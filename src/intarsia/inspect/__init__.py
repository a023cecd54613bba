"""What was done to the data, for people to look at: tables, maps, notebook output, the report page."""
