"""Tests of references for programs without intarsia."""
