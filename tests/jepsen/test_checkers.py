"""The checkers find what they are for, and nothing in histories that are right."""

import pytest

from jepsen import checkers


def record(begun, ended, outcome="ok", **more):
    return {"process": "p", "begun": begun, "ended": ended, "outcome": outcome, **more}


def append(begun, ended, element, outcome="ok"):
    return record(begun, ended, outcome, steps=[["append", "a", element]])


def read(begun, ended, *elements, **more):
    return record(begun, ended, steps=[["read", "a", list(elements)]], **more)


def write(begun, ended, value, outcome="ok"):
    return record(begun, ended, outcome, key="r", write=value)


def look(begun, ended, value):
    return record(begun, ended, key="r", read=value)


def count(begun, ended, value, increment=True, outcome="ok", **more):
    return record(begun, ended, outcome, key="c", value=value, increment=increment, **more)


def put(begun, ended, element, outcome="ok"):
    return record(begun, ended, outcome, key="q", put=element)


def take(begun, ended, element, outcome="ok"):
    return record(begun, ended, outcome, key="q", taken=element)


RIGHT = {
    "lists": [
        [append(0, 1, 1), append(2, 3, 2), read(4, 5, 1, 2, final=True)],
        # Unknown: it may have happened, and late.
        [append(0, 1, 1, "info"), read(2, 3), read(4, 5, 1, final=True)],
        [append(0, 1, 1, "info"), read(2, 3, final=True)],
        [append(0, 9, 1), read(1, 2), read(3, 4, 1), read(10, 11, 1, final=True)],
    ],
    "registers": [
        [look(0, 1, None), write(2, 3, 1), look(4, 5, 1)],
        [write(0, 9, 1), write(1, 2, 2), look(3, 4, 1), look(5, 6, 1)],
        [write(0, 1, 1), write(2, 3, 2, "info"), look(4, 5, 1), look(6, 7, 2)],
        [write(0, 1, 1), write(2, 3, 2, "fail"), look(4, 5, 1)],
    ],
    "counters": [
        [count(0, 1, 1), count(2, 3, 2), count(4, 5, 2, increment=False, final=True)],
        [count(0, 1, 1), count(2, 3, 0, outcome="info"), count(4, 5, 2, increment=False, final=True)],
        [count(0, 9, 2), count(1, 2, 1)],
    ],
    "queues": [
        [put(0, 1, 1), take(2, 3, 1), take(4, 5, None), record(6, 7, key="q", rest=[])],
        [put(0, 1, 1), take(2, 3, None, "info"), record(4, 5, key="q", rest=[])],
        [put(0, 1, 1, "info"), record(2, 3, key="q", rest=[1])],
    ],
}

WRONG = {
    "lists": [
        ("an acknowledged append is lost", [append(0, 1, 1), append(2, 3, 2), read(4, 5, 1, final=True)]),
        ("do not agree", [append(0, 1, 1), append(0, 1, 2), read(2, 3, 1, 2), read(2, 3, 2, 1)]),
        ("refused or never written", [append(0, 1, 1, "fail"), read(2, 3, 1)]),
        ("an element twice", [append(0, 1, 1), read(2, 3, 1, 1)]),
        ("no order explains", [append(0, 1, 1), read(2, 3), read(4, 5, 1)]),
        ("no order explains", [append(0, 9, 1), read(1, 2, 1), read(3, 4), read(10, 11, 1)]),
        (
            "own appends",
            [record(0, 1, steps=[["append", "a", 1], ["read", "a", [2]]]), append(0, 1, 2), read(2, 3, 2, 1)],
        ),
    ],
    "registers": [
        ("before and after", [write(0, 1, 1), write(2, 3, 2), look(4, 5, 1), look(6, 7, 2)]),
        ("all the time", [write(0, 1, 1), look(2, 3, None)]),
        ("refused or never written", [write(0, 1, 1, "fail"), look(2, 3, 1)]),
        ("before it was written", [look(0, 1, 1), write(2, 3, 1)]),
        ("all the time", [write(0, 1, 1), write(2, 3, 2), look(2, 3, 2), look(4, 5, 1)]),
    ],
    "counters": [
        ("two increments", [count(0, 1, 1), count(2, 3, 1)]),
        ("goes back", [count(0, 1, 2), count(2, 3, 1)]),
        ("goes back", [count(0, 1, 1), count(2, 3, 0, increment=False)]),
        ("ends at", [count(0, 1, 1), count(0, 1, 2), count(2, 3, 2, increment=False), count(4, 5, 3, increment=False, final=True)]),
    ],
    "queues": [
        ("taken 2 times", [put(0, 1, 1), take(2, 3, 1), take(4, 5, 1)]),
        ("never put there", [take(2, 3, 1)]),
        ("are gone", [put(0, 1, 1), take(2, 3, None), record(4, 5, key="q", rest=[])]),
    ],
}


@pytest.mark.parametrize("name, history", [(name, history) for name, histories in RIGHT.items() for history in histories])
def test_right_histories_pass(name, history):
    assert checkers.ALL[name](history) == []


@pytest.mark.parametrize("name, line, history", [(name, *each) for name, cases in WRONG.items() for each in cases])
def test_wrong_histories_are_found(name, line, history):
    found = checkers.ALL[name](history)
    assert any(line in wrong for wrong in found), found
