"""The short form of `make soak`: a few cases of every target, and the parts of which it is made."""

import json
import random
from collections import Counter

import pytest
from soak import FULL, PARTS
from soak import __main__ as program
from soak.linear import UNKNOWN, Operation, explained, rows
from soak.mutations import VALUES, damaged, damaged_json, places
from soak.record import Record
from soak.run import run_all
from soak.target import Target, choice_of, targets

ALL = targets()
CASES = {"damage": 25, "histories": 1, "threads": 3, "disk": 12, "hostile": 10, "upgrades": 8}
QUICK = (
    "damage decoders of every chain of codecs",
    "damage chunks of logical arrays",
    "damage manifests as JSON",
    "damage shards and their indexes",
    "threads plain stores",
    "disk calls that fail: a plain store",
    "disk reads that fail: a local repository",
    "disk power cuts: slots of a shard",
    "hostile",
    "upgrades",
)
"""What `make test` looks at: something of every part but the histories, which may take minutes."""


def of_target(target):
    return target.label


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(t, marks=[] if t.label.startswith(QUICK) else pytest.mark.torture, id=t.label)
        for t in ALL
    ],
)
def test_nothing_is_found_in_a_few_cases(target, tmp_path):
    """In a process of its own, with its limits and its watchdog, as in the long run."""
    if reason := target.needs():
        pytest.skip(reason)
    failures = []
    record = Record(tmp_path / "state.jsonl")
    cases = 5 if "sources" in target.name else CASES[target.part]
    run_all([(target, cases)], 7, record, lambda *failure: failures.append(failure), processes=1)
    assert not failures, "\n".join(str(failure[-1]) for failure in failures[:3])
    assert record.row(target.label, 7).cases == cases


def test_every_part_has_targets_and_a_goal():
    assert set(PARTS) == set(FULL) == {target.part for target in ALL}
    labels = [target.label for target in ALL]
    assert len(labels) == len(set(labels))


def crashes(_folder, _seed):
    def case(number, _rng):
        if number == 3:
            import ctypes

            ctypes.string_at(0)
        if number == 5:
            raise ValueError("five")
        return "fine"

    return case


def test_a_crash_and_an_error_are_told_with_their_numbers_and_the_rest_is_run(tmp_path, monkeypatch):
    target = next(t for t in ALL if t.name == "archives and doors")
    assert choice_of(1, target, 5).random() == choice_of(1, target, 5).random()
    assert choice_of(1, target, 5).random() != choice_of(1, target, 6).random()
    state = tmp_path / "state.jsonl"
    record, found = Record(state), []
    crashing = Target("tests", "crashes", crashes)
    (tmp_path / "soak_crashes.py").write_text("")
    from soak import run

    code = (
        "import sys; from soak import child, target; from tests.test_soak import crashes; "
        "child.targets = lambda part: [target.Target('tests', 'crashes', crashes)]; child.main(*sys.argv[1:])"
    )
    plain = run.subprocess.Popen
    monkeypatch.setattr(
        run.subprocess, "Popen", lambda command, **more: plain([command[0], "-c", code, *command[3:]], **more)
    )
    run_all([(crashing, 8)], 1, record, lambda *told: found.append(told), processes=1)
    assert sorted(number for _, _, number, _ in found) == [3, 5]
    assert "Segmentation fault" in next(text for _, _, number, text in found if number == 3)
    again = Record(state)
    assert again.row(crashing.label, 1).cases == 8
    assert again.row(crashing.label, 1).counts["fine"] + again.row(crashing.label, 1).counts["not told"] == 6
    run_all([(crashing, 8)], 1, again, lambda *told: found.append(told), processes=1)
    assert len(found) == 2  # nothing is run twice


def cannot_be_compiled(_folder):
    raise OSError("no compiler")


def test_a_target_that_cannot_be_prepared_is_told_and_the_others_are_run(tmp_path):
    unprepared = Target("tests", "unprepared", crashes, environment=cannot_be_compiled, seconds=10)
    other = next(t for t in ALL if t.name == "archives and doors")
    record, found = Record(tmp_path / "state.jsonl"), []
    run_all([(other, 2), (unprepared, 8)], 1, record, lambda *told: found.append(told), processes=1)
    ((target, _, number, text),) = found
    assert (target, number) == (unprepared, -1)
    assert "no compiler" in text
    assert record.row(other.label, 1).cases == 2


def test_a_run_that_is_not_finished_does_not_pass(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(program, "run_all", lambda *_, **__: None)
    command = ["hostile", "--cases", "3", "--state", str(tmp_path / "state.jsonl")]
    assert program.main(command) == 1
    assert "not finished: hostile archives and doors" in capsys.readouterr().out
    assert program.main([*command, "--minutes", "-1"]) == 0  # its time was up


def test_the_target_that_has_the_longest_to_go_is_run_first(tmp_path, monkeypatch):
    begun = []
    short, long = (Target("tests", f"{s}", crashes, seconds=s, stretch=5) for s in (1, 3))

    def run(stretch):
        begun.append((stretch.target.seconds, stretch.done))
        stretch.done += 5
        told = {"counts": {}, "grown": 0, "seconds": 0}
        stretch.record.add(
            label=stretch.target.label, seed=1, start=stretch.done - 5, stop=stretch.done, **told
        )

    monkeypatch.setattr("soak.run.Stretch.run", run)
    run_all([(short, 10), (long, 10)], 1, Record(tmp_path / "state.jsonl"), None, processes=1)
    assert begun == [(3, 0), (3, 5), (1, 0), (1, 5)]


def test_damage_follows_from_the_seed_and_always_is_bytes():
    plain = bytes(range(200))
    for number in range(500):
        one, other = (damaged(plain, random.Random(number), [plain, b"x"]) for _ in range(2))
        assert one == other
        assert isinstance(one, bytes)
    document = {"a": [1, {"b": "c"}], "d": None}
    assert ("a", 1, "b") in list(places(document))
    made = {damaged_json(document, random.Random(number), [plain]) for number in range(200)}
    assert len(made) > 100
    assert sum(text != json.dumps(document).encode() for text in made) > 100
    before = repr(VALUES)
    for number in range(500):
        damaged_json(document, random.Random(number), [plain])
    assert repr(VALUES) == before  # or a case would depend on those before it


def append(value, begun, ended=float("inf")):
    return Operation("append", value, begun, ended)


def read(values, begun, ended):
    return Operation("read", None, begun, ended, values)


def test_the_checker_knows_right_histories_from_wrong_ones():
    assert explained([append(1, 0, 3), append(2, 1, 2), read((2, 1), 4, 5)])
    assert explained([append(1, 0, 3), append(2, 1, 2), read((1, 2), 4, 5)])
    assert not explained(
        [append(1, 0, 1), append(2, 2, 3), read((2, 1), 4, 5)]
    )  # the order of what came in turn
    assert not explained([append(1, 0, 1), read((), 2, 3)])  # lost
    assert not explained([append(1, 0, 1), read((1, 1), 2, 3)])  # twice
    assert explained([append(1, 0), read((), 2, 3), read((1,), 4, 5)])  # not acknowledged, and seen later
    assert explained([append(1, 0), read((), 2, 3)])  # or never
    assert not explained([append(1, 0), read((1,), 2, 3), read((), 4, 5)])  # but not seen and gone
    assert not explained([append(1, 0, 5), read((1,), 1, 2), read((), 3, 4)])


def test_the_page_is_written_from_what_the_run_keeps(tmp_path, monkeypatch):
    page = tmp_path / "trust.md"
    page.write_text(f"before\n{program.BEGIN}\nold\n{program.END}\nafter\n")
    monkeypatch.setattr(program, "PAGE", page)
    record = Record(tmp_path / "state.jsonl")
    label = "histories local disk"
    record.add(
        label=label, seed=3, seconds=1, grown=0, start=0, stop=2, processor=4,
        counts={"kills": 7, "explained": 2, "acknowledged appends": 61},
    )  # fmt: skip
    record.add(label=label, seed=3, failure=1, text="no order explains it")
    arguments = ["histories", "--state", str(record.path), "--seed", "3", "--report"]
    for _ in range(2):
        assert program.main(arguments) == 0
    text = page.read_text()
    assert text.startswith(f"before\n{program.BEGIN}")
    assert text.endswith(f"{program.END}\nafter\n")
    assert "old" not in text
    assert "| histories: acknowledged appends | 61 | 10,000 | |" in text
    assert "61 acknowledged appends, 2 explained, 7 kills" in text
    assert text.count("| histories | 2 | 300 | 1 |") == 1


def test_the_checker_takes_long_histories_with_much_at_once():
    """Eight at a time, and what nobody knows of: without looking ahead there are too many orders to try."""
    order, history, values = random.Random(5), [], []
    for turn in range(6):
        batch = list(range(8 * turn + 1, 8 * turn + 9))
        history += [append(v, 10.0 * turn, 10.0 * turn + 9 - i / 10) for i, v in enumerate(batch)]
        history.append(append(10_000 + turn, 10.0 * turn))
        order.shuffle(batch)
        values += batch
        history.append(read(tuple(values), 10.0 * turn + 9.5, 10.0 * turn + 9.9))
    assert explained(history)
    wrong = [*values[:-2], values[-1], values[-1]]
    assert not explained([*history[:-1], read(tuple(wrong), 59.5, 59.9)])
    restored = Operation("restore", tuple(values[:3]), 60.0, 61.0)
    assert explained([*history, restored, read(tuple(values[:3]), 62.0, 63.0)])
    assert not explained([append(1, 0, 1), Operation("restore", (), 2, 3), read((1,), 4, 5)])


def test_one_case_can_be_run_again(capsys):
    program.main(["upgrades", "--target", "archives of this version and of older ones", "--case", "3"])
    assert capsys.readouterr().out == "repository\n"
    with pytest.raises(SystemExit):
        program.main(["nonsense"])


def random_history(rng):
    """Up to seven changes, some of which nobody knows of, and reads that some order explains, or none."""
    history, state = [], ()
    for value in range(1, rng.randint(3, 8)):
        kinds = ["append", "append", "grow", "restore", *(["write", "drop"] if state else [])]
        kind = rng.choice(kinds)
        argument = {
            "append": value, "grow": 1, "restore": tuple(rng.choice(((), state[:1], state, (1, 2)))),
            "write": (rng.randrange(max(1, len(state))), value), "drop": (0, max(1, len(state) - 1)),
        }[kind]  # fmt: skip
        begun = value + rng.uniform(-2, 0)
        change = Operation(
            kind, argument, begun, UNKNOWN if rng.random() < 0.3 else value + rng.uniform(0, 2)
        )
        history.append(change)
        state = (rows(state, change) if rng.random() < 0.9 else state) or state
        if rng.random() < 0.4:
            history.append(read(state, value - rng.random(), value + rng.random()))
    return [*history, read(state, 20, 21)]


def test_leaving_states_out_changes_no_verdict():
    rng, verdicts = random.Random(11), Counter()
    for _ in range(600):
        history = random_history(rng)
        plain = explained(history, step=lambda state, operation: rows(state, operation))
        assert explained(history) == plain, history
        verdicts[plain] += 1
    assert min(verdicts.values()) > 80
