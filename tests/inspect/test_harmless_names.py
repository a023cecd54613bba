"""Text from strangers cannot leave its place in a page or in a terminal."""

from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from intarsia.display import markup, plain

EVERY_CHARACTER = st.text(st.characters(exclude_categories=()))


class Elements(HTMLParser):
    """Collects what a browser would see."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.tags, self.text = [], ""

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


@given(EVERY_CHARACTER)
def test_markup_is_text_and_nothing_else(text):
    page = Elements()
    page.feed(f'<p title="{markup(text, 10**6)}">{markup(text, 10**6)}</p>')
    page.close()
    assert [tag for tag, _ in page.tags] == ["p"]
    assert set(page.tags[0][1]) == {"title"}
    assert page.text == plain(text, 10**6) == page.tags[0][1]["title"]


@given(EVERY_CHARACTER)
@example("no-break\xa0space")
def test_plain_text_holds_nothing_that_a_terminal_obeys(text):
    shown = plain(text)
    assert all(c.isprintable() for c in shown)
    shown.encode("utf-8")


@pytest.mark.parametrize("harmless", ["température", "温度", "T_2m (K)", "μm²", "naïve 😀"])
def test_ordinary_names_stay_as_they_are(harmless):
    assert plain(harmless) == harmless


def test_long_text_is_cut():
    assert len(plain("x" * 10_000)) == 500
