"""What makes a function a command: its options, from signatures and docstrings, and what it prints.

The options of a command are the parameters of its function, and those of the function of the library that it
calls. `arguments` says how they are written.
"""

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from typing import Annotated, Any, Literal

import typer

from intarsia.cli.arguments import OPTION_SYNTAX, OptionSyntax, SharedOptions, syntax_of
from intarsia.cli.output import Exit, Output, print_error, progress_on_stderr
from intarsia.errors import in_python, spell_arguments
from intarsia.versions.repository import explain_errors

OF_STORES = frozenset(("branch", "tag", "snapshot_id", "as_of", "message"))
"""Arguments of functions that say which version is meant: the store of a command knows it."""


@dataclass(frozen=True)
class Option:
    """A parameter of a command: what typer reads, and the argument that it becomes."""

    argument: str
    """The name of the argument of the function."""

    parameter: inspect.Parameter
    """The parameter as typer reads it."""

    syntax: OptionSyntax
    """How it is written."""

    def value(self, texts: Mapping[str, Any]) -> Any:
        """The argument, from everything that typer read."""
        name, parse = self.parameter.name, self.syntax.parse
        text = texts[name]
        return text if parse is None or text is None else parse(text, name.replace("_", " "))

    def text(self, value: object) -> str:
        """How a message names it, with a value, or without one (`...`)."""
        words: Any = value
        if isinstance(value, Mapping):
            words = " ".join(f"{key}={'…' if each is ... else each}" for key, each in value.items())
        elif isinstance(value, list | tuple):
            words = value[0]
        option = f"--{self.parameter.name.replace('_', '-')}"
        return option if value is ... or self.syntax.kind is bool else f"{option} {words}"


def verb(
    calls: Callable[..., Any] | None = None,
    *,
    without: Iterable[str] = (),
    words: type = SharedOptions,
    unit: Literal["steps", "bytes"] = "steps",
    **syntaxes: OptionSyntax,
) -> Callable[[Callable[..., Output | Iterator[Output]]], Callable[..., None]]:
    """Make a function a command. It returns what is printed, or yields it part by part.

    Positional parameters are arguments, keyword-only ones are options, and their docstring describes them:
    `name (METAVAR): help`, with a short form as in `(-n METAVAR)`. A section with another heading than
    `Args` is a panel of the help. A parameter whose type is a dataclass stands for the parameters in its
    fields. If the function takes `**options`, the keyword-only parameters of the function that it `calls`
    are options too, with its docstring, except those `without` which it is called; an option that was left
    out is not passed on. `syntaxes` are for parameters that are written in an unusual way, and the docstring
    of `words` describes what several commands have. Every command has `--json`, and a bar if it takes long; a
    `progress` parameter of one of the two functions counts its steps, of this `unit`.
    """

    def decorate(function: Callable[..., Output | Iterator[Output]]) -> Callable[..., None]:
        signature = inspect.signature(function, eval_str=True)
        own = {name: p for name, p in signature.parameters.items() if p.kind is not p.VAR_KEYWORD}
        own.pop("progress", None)
        counted = any("progress" in inspect.signature(each).parameters for each in (function, calls) if each)
        text, own_entries = read_docstring(function.__doc__ or "")
        entries: dict[str, OptionHelp] = {}
        for each in (SharedOptions, words):
            entries |= read_docstring(each.__doc__ or "")[1]
        entries |= own_entries
        groups = {name: _group_options(p.annotation) for name, p in own.items() if is_dataclass(p.annotation)}
        options = [
            option
            for name, p in own.items()
            for option in groups.get(name) or [_option(p, syntax_of(p), entries)]
        ]
        passed_on: list[Option] = []
        if calls is not None:
            known = {option.argument for option in options} | OF_STORES | {*without}
            passed_on = _options_of(calls, known, entries, {**OPTION_SYNTAX, **syntaxes})

        named = {option.argument: option for option in (*options, *passed_on)}

        def arguments(texts: dict[str, Any]) -> dict[str, Any]:
            values = {option.argument: option.value(texts) for option in options}
            for name, fields in groups.items():
                values[name] = own[name].annotation(**{f.argument: values.pop(f.argument) for f in fields})
            used = (option for option in passed_on if texts[option.parameter.name] not in (None, [], False))
            return values | {option.argument: option.value(texts) for option in used}

        def spell(name: str, value: object) -> str:
            return named[name].text(value) if name in named else in_python(name, value)

        @functools.wraps(function)
        def command(*, as_json: bool, **texts: Any) -> None:
            more = {"store": texts["store"]} if "store" in texts else {}
            code: int = Exit.OK
            try:
                place = texts.get("store", "the repository")
                with explain_errors(place), spell_arguments(spell):
                    values = arguments(texts)
                    with progress_on_stderr(function.__name__, counted=counted, unit=unit) as progress:
                        printed = function(**values, **({"progress": progress} if counted else {}))
                    for output in [printed] if isinstance(printed, Output) else printed:
                        output.print(as_json=as_json, **more)
                        code = output.code
            except (typer.Exit, BrokenPipeError):  # typer knows how to end quietly
                raise
            except (Exception, KeyboardInterrupt) as error:
                code = print_error(error, as_json=as_json)
            if code:
                raise typer.Exit(int(code))

        parameters = [*(option.parameter for option in (*options, *passed_on)), _json_parameter()]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # where typer looks
        command.__doc__ = text
        return command

    return decorate


@dataclass(frozen=True)
class OptionHelp:
    """What a docstring says about a parameter."""

    panel: str | None
    short: str | None
    metavar: str | None
    help: str


ENTRY = re.compile(r"(\w+)(?: \((-\w)? ?([^)]*)\))?: (.*)", re.DOTALL)
"""`name (-s METAVAR): help`."""


def read_docstring(documentation: str) -> tuple[str, dict[str, OptionHelp]]:
    """The paragraphs of a docstring, each on one line, and its sections about parameters.

    >>> read_docstring("Do it.\\n\\nArgs:\\n    limit (-n N): Show only\\n        the first ones.")
    ('Do it.', {'limit': OptionHelp(panel=None, short='-n', metavar='N', help='Show only the first ones.')})
    """
    text, entries = [], {}
    for paragraph in inspect.cleandoc(documentation).split("\n\n"):
        heading, _, section = paragraph.partition(":\n    ")
        if not section:
            text.append(" ".join(paragraph.split()))  # typer would break lines where the source does
        elif not heading.startswith(">>>"):
            for line in re.split(r"\n    (?! )", section):
                name, short, metavar, words = ENTRY.fullmatch(line).groups()  # type: ignore[union-attr]
                panel = None if heading == "Args" else heading
                entries[name] = OptionHelp(panel, short, metavar, " ".join(words.split()))
    return "\n\n".join(text), entries


def _option(p: inspect.Parameter, syntax: OptionSyntax | None, entries: Mapping[str, OptionHelp]) -> Option:
    """A parameter as an option of a command, or as one of its arguments."""
    assert syntax is not None, p
    name = syntax.option or p.name
    entry = entries.get(name) or OptionHelp(None, None, None, syntax.help)
    settings: dict[str, Any] = {
        "metavar": entry.metavar or syntax.metavar,
        "help": entry.help,
        "show_default": p.default not in ("", None, False, p.empty),
    }
    described: Any = typer.Argument(**settings)
    if p.kind is p.KEYWORD_ONLY:
        names: Any = filter(None, (f"--{name.replace('_', '-')}", entry.short))
        described = typer.Option(*names, rich_help_panel=entry.panel, **(settings | {**syntax.limits}))
    kind: Any = syntax.kind
    annotation: Any = Annotated[kind, described]
    # Keyword-only ones may come in any order, with or without a default.
    parameter = inspect.Parameter(name, p.KEYWORD_ONLY, default=p.default, annotation=annotation)
    return Option(p.name, parameter, syntax)


def _group_options(group: Any) -> list[Option]:
    """The fields of a dataclass as options: arguments if they have no default."""
    entries: dict[str, OptionHelp] = {}
    for each in reversed(group.__mro__):
        entries |= read_docstring(each.__doc__ or "")[1] if is_dataclass(each) else {}
    parameters = inspect.signature(group, eval_str=True).parameters.values()
    fields = [p if p.default is p.empty else p.replace(kind=p.KEYWORD_ONLY) for p in parameters]
    return [_option(p, syntax_of(p), entries) for p in fields]


def _options_of(
    calls: Callable[..., Any],
    known: set[str],
    entries: Mapping[str, OptionHelp],
    syntaxes: Mapping[str, OptionSyntax],
) -> list[Option]:
    """The keyword-only parameters of a function that can be written at a command line, as options."""
    described = read_docstring(calls.__doc__ or "")[1]
    options = []
    for name, p in inspect.signature(calls, eval_str=True).parameters.items():
        syntax = syntaxes.get(name) or syntax_of(p)
        if name in known or p.kind is not p.KEYWORD_ONLY or syntax is None:
            continue
        about = dict(entries)
        if name in described:
            words = without_python(described[name].help)
            about = {syntax.option or name: OptionHelp(None, None, None, words)} | about
        default = p.default if isinstance(p.default, str) and syntax.kind == str | None else None
        p = p.replace(default=False if syntax.kind is bool else default)
        options.append(_option(p, syntax, about))
    return options


def without_python(text: str) -> str:
    """The docstring of an argument, for people who write options.

    >>> without_python('Whether to add `variables`; `"never"` refuses it.')
    'Add variables; never refuses it.'
    """
    text = re.sub(r'"([\w*]+)"', r"\1", text.replace("`", ""))
    return re.sub(r"^Whether to (\w)", lambda match: match[1].upper(), text)


def _json_parameter() -> inspect.Parameter:
    option = typer.Option("--json", help="Print one JSON document instead of text.")
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter("as_json", kind, default=False, annotation=Annotated[bool, option])
