"""What was done to the data, for people who look: tables, maps, notebook output, the report page."""

from intarsia.report.survey import Pipeline, RegionRow, Survey, survey

__all__ = ["Pipeline", "RegionRow", "Survey", "survey"]
