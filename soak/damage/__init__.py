"""Damage: bytes that are not as they were written. A file for each kind of thing that is damaged."""

from soak.damage import chunks, decoders, documents, repositories, shards, sources

TARGETS = [
    *decoders.TARGETS,
    *chunks.TARGETS,
    *shards.TARGETS,
    *documents.TARGETS,
    *repositories.TARGETS,
    *sources.TARGETS,
]
