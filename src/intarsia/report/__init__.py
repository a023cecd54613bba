"""What was done to the data, for people who look: tables, maps, notebook output, the report page."""
