"""The program run in this process, and what it printed; JSON has the form that the documentation shows."""

import json
from dataclasses import dataclass
from pathlib import Path

from typer.testing import CliRunner

from intarsia.cli.app import app

FORMS = json.loads((Path(__file__).parents[2] / "docs" / "_site" / "json_documents.json").read_text())
KINDS = {
    "string": str,
    "integer": int,
    "number": int | float,
    "boolean": bool,
    "object": dict,
    "null": None,
    "any": object,
}


def has_form(value, form):
    """Whether a document has all the keys of its form and no others, with values of the right types."""
    if isinstance(form, str):
        is_flag = isinstance(value, bool) and "boolean" not in form and form != "any"
        return not is_flag and any(isinstance(value, KINDS[kind] or type(None)) for kind in form.split("|"))
    if isinstance(form, list):
        return isinstance(value, list) and all(has_form(each, form[0]) for each in value)
    if "any of" in form:
        return any(has_form(value, each) for each in form["any of"])
    if not isinstance(value, dict) or value.keys() != form.keys():
        return False
    return all(has_form(value[key], form[key]) for key in form)


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
    assert has_form(printed, FORMS[verb]), printed
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
    assert has_form(printed, FORMS["error"]), printed
    assert printed["error"]["exit_code"] == code
    return ran.err
