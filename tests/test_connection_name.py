"""Names of connections: what a person reads can be typed, and leads to one connection."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.connection_name import ConnectionName

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)


@given(TEXTS, TEXTS, TEXTS)
def test_a_name_reads_back_and_is_one_visible_word(tenant: str, provider: str, id_: str) -> None:
    name = ConnectionName(tenant, provider, id_)

    assert ConnectionName.parse(str(name)) == name
    assert str(name).isprintable()
    assert len(str(name).split()) == 1


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        pytest.param("acme/github/repo-1", ("acme", "github", "repo-1"), id="plain"),
        pytest.param("acme/github/octo/hello", ("acme", "github", "octo/hello"), id="slashes last"),
        pytest.param("a%2Fb/github/c", ("a/b", "github", "c"), id="a slash in a tenant"),
        pytest.param("a%2fb/github/c%2Fd", ("a/b", "github", "c/d"), id="either case"),
        pytest.param("a/github/100%25", ("a", "github", "100%"), id="a percent sign"),
        pytest.param("a/github/100%", ("a", "github", "100%"), id="a bare percent sign"),
        pytest.param("Ünï/github/日本", ("Ünï", "github", "日本"), id="as it is written"),
        pytest.param("a/github//x/", ("a", "github", "/x/"), id="slashes at both ends"),
        pytest.param("../github/..", ("..", "github", ".."), id="dots mean nothing"),
    ],
)
def test_the_first_two_slashes_divide(text: str, parts: tuple[str, str, str]) -> None:
    assert ConnectionName.parse(text) == ConnectionName(*parts)


@pytest.mark.parametrize("text", ["", "acme", "acme/github", "acme/github/", "/github/a", "a//b"])
def test_what_lacks_a_part_is_no_name(text: str) -> None:
    assert ConnectionName.parse(text) is None
