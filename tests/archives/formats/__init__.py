"""Tests of the formats of source files."""
