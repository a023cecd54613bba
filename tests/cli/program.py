"""The program run in this process, and what it printed; JSON is checked against its schema."""

import json
from dataclasses import dataclass

from typer.testing import CliRunner

from intarsia import schemas
from intarsia.cli.app import app


@dataclass(frozen=True)
class Ran:
    """What a run printed, and its exit code."""

    code: int
    out: str
    err: str

    def __str__(self):
        return f"exit {self.code}\n{self.out}\n{self.err}"


def run(*arguments):
    """Run `intarsia` with these arguments."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="intarsia")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ran(result.exit_code, result.stdout, result.stderr)


def succeed(*arguments):
    """Run, expect success, return what was printed."""
    ran = run(*arguments)
    assert ran.code == 0, ran
    return ran.out


def document(verb, *arguments, code=0):
    """Run with --json, expect this exit code and valid JSON on the right stream, return it."""
    ran = run(verb, *arguments, "--json")
    assert ran.code == code, ran
    printed = json.loads(ran.out)
    assert schemas.problems(f"cli/{verb}", printed) == []
    return printed


def failure(verb, *arguments, code):
    """Run twice, as text and as JSON; expect this exit code and a message, return the message."""
    ran = run(verb, *arguments)
    assert ran.code == code, ran
    assert ran.out == ""
    assert "Traceback" not in ran.err
    as_json = run(verb, *arguments, "--json")
    assert as_json.code == code
    printed = json.loads(as_json.err)
    assert schemas.problems("cli/error", printed) == []
    assert printed["error"]["exit_code"] == code
    return ran.err
