"""The program as a process: terminals, colours, interruption, missing packages, completion, demo."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import intarsia
from intarsia.cli.output import Exit, exit_of
from intarsia.errors import install_command
from tests.cli.program import document, failure, run, succeed

PROGRAM = [sys.executable, "-m", "intarsia"]


def in_a_terminal(arguments, columns=100, program=PROGRAM, **environment):
    """What the program writes when somebody looks."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [*program, *map(str, arguments)],
        stdout=follower,
        stderr=follower,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns), **environment},
    )
    os.close(follower)
    text = b""
    while True:
        select.select([leader], [], [])
        try:
            piece = os.read(leader, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        text += piece
    os.close(leader)
    return process.wait(), text.decode()


def test_a_terminal_gets_colours_and_a_table_that_fits(made):
    code, text = in_a_terminal(["regions", made[0], "temperature"], columns=90)
    assert code == 0
    assert "\x1b[" in text
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)
    assert max(len(line) for line in re.split("[\r\n]", plain)) <= 90
    assert "gzip" in plain


def test_no_color_is_respected(made):
    _, text = in_a_terminal(["regions", made[0], "temperature"], NO_COLOR="1")
    assert not re.search(r"\x1b\[[0-9;]*(3[0-9]|38;|48;)[0-9;]*m", text)
    assert "gzip" in text


def test_words_of_strangers_cannot_command_a_terminal(tmp_path):
    evil = "\x1b]0;owned\x07\x1b[2J[red]x[/red]"
    array = intarsia.create(
        tmp_path / "s", "a", shape=(4, 4), chunks=(2, 2), dtype="f4", dimension_names=(evil, "x")
    )
    array.append(np.ones((2, 4)), codecs=["gzip"])
    _, text = in_a_terminal(["info", tmp_path / "s"], columns=300)
    assert "\x1b]0;" not in text
    assert "\x1b[2J" not in text
    assert "[red]x[/red]" in text


def test_interrupting_leaves_the_data_whole(tmp_path):
    """Ctrl-C while data is being encoded: the old version, a message, exit code 130."""
    store = tmp_path / "store"
    repo = intarsia.open_repository(store, create=True)
    with intarsia.transaction(repo, message="create") as tx:
        tx.create("t", shape=(0, 1000), chunks=(1, 1000), dtype="f8").append(
            np.ones((3, 1000)), codecs=["gzip"]
        )
    before = repo.lookup_branch("main")
    np.save(tmp_path / "big.npy", np.random.default_rng(0).normal(size=(6000, 1000)))
    process = subprocess.Popen(
        [*PROGRAM, "append", str(store), "t", str(tmp_path / "big.npy"), "-c", "zstd:level=19"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    chunks = store / "chunks"
    while not (chunks.is_dir() and len(list(chunks.iterdir())) > 10):
        assert process.poll() is None, "it ended before it could be interrupted"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    assert "interrupted" in err
    assert intarsia.open_repository(store).lookup_branch("main") == before
    assert intarsia.verify(store, "t") == ()
    assert intarsia.open(store, "t").shape == (3, 1000)


@pytest.mark.parametrize("runs", [2, pytest.param(500, marks=pytest.mark.torture)])
def test_it_ends_with_its_exit_code_every_time(runs, made, capfd):
    """Threads of Icechunk used to trip over the end of the interpreter: 9 of 170 times."""

    def ran(_):
        command = [*PROGRAM, "info", str(made[0]), "nothing"]
        return subprocess.run(command, capture_output=True, check=False).returncode

    codes = Counter()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for code in pool.map(ran, range(runs)):
            codes[code] += 1
            if codes.total() % 100 == 0:  # it takes minutes: somebody may want to know how far it is
                with capfd.disabled():
                    print(
                        f"{codes.total()} of {runs} runs, exit codes {dict(codes)}",
                        file=sys.stderr,
                        flush=True,
                    )
    assert codes == {3: runs}


WATCHED = """
import atexit, sys
from intarsia.cli import app
atexit.register(print, "the interpreter is being taken apart")
def end(code, end=app._end):
    print("imported:", *(name for name in sys.modules if name.startswith("intarsia.")))
    end(code)
app._end = end
app.run()
"""


@pytest.mark.parametrize(("array", "code"), [("temperature", 0), ("nothing", 3)])
def test_everything_is_said_but_the_interpreter_is_not_taken_apart(array, code, made):
    command = [sys.executable, "-c", WATCHED, "info", str(made[0]), array]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert ("temperature" in done.stdout) == (code == 0)
    assert "taken apart" not in done.stdout
    imported = done.stdout.split("imported:")[1].split()
    assert "intarsia.cli.inspect" in imported
    others = {"intarsia.cli.archive", "intarsia.archives.ingestion", "intarsia.inspect.server"}
    assert not others & {*imported}


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_a_missing_package_is_one_friendly_line(missing, tmp_path):
    (tmp_path / f"{missing}.py").write_text(f"raise ImportError('no {missing}', name='{missing}')")
    ran = subprocess.run(
        [*PROGRAM, "info", "x"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        check=False,
    )
    assert ran.returncode == 7
    assert ran.stderr.strip() == f"intarsia: the command line needs {missing}: {install_command('cli')}"


def test_a_reader_who_goes_away_is_no_error(made):
    ran = subprocess.run(
        f"{sys.executable} -m intarsia regions {made[0]} --json | head -c 1",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stderr == ""


def test_completion_for_shells():
    ran = subprocess.run(
        PROGRAM,
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "_INTARSIA_COMPLETE": "complete_bash",
            "COMP_WORDS": "intarsia re",
            "COMP_CWORD": "1",
        },
        check=False,
    )
    assert {"regions", "read", "recode", "report"} <= set(ran.stdout.split())


def test_version_and_help():
    first, *compressors = succeed("--version").splitlines()
    assert first == f"intarsia {intarsia.__version__}"
    assert [line.split(":")[0].strip() for line in compressors] == ["zstd", "gzip", "blosc"]
    text = succeed("--help")
    for code in Exit:
        assert f"{code.value} {code.name.lower().replace('_', ' ')}" in " ".join(text.split())
    assert run("nonsense").code == 2
    assert run("info").code == 2


def test_an_unexpected_error_asks_to_be_reported(made, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("intarsia.cli.inspect.survey_layers", broken)
    message = failure("info", made[0], code=70)
    assert "please report it" in message
    assert exit_of(ZeroDivisionError()) is Exit.UNEXPECTED


def test_the_demo_tells_its_story_and_measures(tmp_path, monkeypatch):
    monkeypatch.setattr("intarsia.cli.demo.DAYS", 2)
    monkeypatch.setattr("intarsia.cli.demo.FRAMES", (8, 64, 64))
    out = succeed("demo", "-o", tmp_path / "out")
    for words in ("5 times", "copies 0 bytes", "One more day", "numbers that matter", "report.html"):
        assert words in out
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Read-only" not in page
    assert "Generation" not in page
    said = document("demo", "-o", tmp_path / "out")
    ours = said["verdicts"][-1]
    assert (ours["way"], ours["all_files"], ours["own_scales"]) == ("intarsia", "equal", "equal")
    assert said["nbytes_copied"] == 0
    repo = intarsia.open_repository(tmp_path / "out" / "store", authorize=True)
    assert intarsia.verify(repo) == ()


def test_the_demo_overwrites_only_what_it_made(tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "precious").touch()
    assert "something else" in failure("demo", "-o", tmp_path, code=2)
    assert (tmp_path / "store" / "precious").exists()


def test_a_bar_appears_on_a_terminal_only_when_it_takes_long(made):
    slow = "import intarsia.cli.output as o; o.PATIENCE = {}; from intarsia.cli.app import run; run()"
    for patience, seen in ((0.0, True), (1e6, False)):
        _, text = in_a_terminal(["info", made[0]], program=[sys.executable, "-c", slow.format(patience)])
        assert ("━" in text) == seen
