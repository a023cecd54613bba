"""Tests of the plan of an ingest."""
