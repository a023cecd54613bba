"""The protocol of progress."""

from intarsia.progress import silent


def test_the_default_says_nothing(capsys):
    assert silent(1, 2) is None
    assert capsys.readouterr() == ("", "")
