"""What was done already, a JSON object a line: a run that was interrupted goes on where it stopped."""

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Row:
    """What is known of one target."""

    next: int = 0
    """The first case that was not run."""
    cases: int = 0
    counts: Counter = field(default_factory=Counter)
    grown: int = 0
    seconds: float = 0.0
    processor: float = 0.0
    """Seconds of processor time, with the preparation."""
    failures: list = field(default_factory=list)


class Record:
    """The file, and its sum for each target and seed."""

    def __init__(self, path):
        self.path = Path(path)
        self._rows = {}
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                self._add(json.loads(line))

    def row(self, label, seed):
        return self._rows.setdefault((label, seed), Row())

    def add(self, **fields):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(fields) + "\n")
        self._add(fields)

    def _add(self, fields):
        row = self.row(fields["label"], fields["seed"])
        if "failure" in fields:
            row.failures.append((fields["failure"], fields["text"]))
            return
        row.next = max(row.next, fields["stop"])
        row.cases += fields["stop"] - fields["start"]
        row.counts += Counter(fields["counts"])
        row.grown = max(row.grown, fields["grown"])
        row.seconds += fields["seconds"]
        row.processor += fields.get("processor", 0.0)
