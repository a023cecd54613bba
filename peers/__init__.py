"""Tests that other people wrote, run through our objects; `make peers`."""
