"""URLs: what is sent, what is refused, and that nothing changes a link that a provider signed."""

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.http import Url
from syncline.http.messages import Headers, Response, read_links

HOSTS = st.sampled_from(
    ["api.example", "API.Example:8443", "127.0.0.1", "[::1]:80", "bücher.example"]
)
PATH = st.text(st.sampled_from("ab/.%2F~üß \"<>`{}|^;:@!$&'()*+,=[]\\-_"), max_size=12)
QUERY = st.text(st.sampled_from("ab=&%2C,+ \"<>ü/?:@[]{}|`'"), max_size=12)


@given(st.sampled_from(["http", "https"]), HOSTS, PATH, QUERY)
def test_urls_are_encoded_as_they_always_were(
    scheme: str, host: str, path: str, query: str
) -> None:
    """Recordings know requests by their URLs."""
    text = f"{scheme}://{host}/{path}?{query}"

    ours, theirs = Url(text), httpx2.URL(text)

    assert str(ours) == str(theirs)
    assert ours.target.encode() == theirs.raw_path
    assert ours.path == theirs.path


@given(QUERY, st.dictionaries(st.text(max_size=4), st.text(max_size=6) | st.booleans(), max_size=3))
def test_parameters_are_merged_as_they_always_were(
    query: str, params: dict[str, str | bool]
) -> None:
    text = f"https://api.example/a?{query}" if query else "https://api.example/a"

    assert str(Url(text).with_params(params)) == str(httpx2.URL(text).copy_merge_params(params))


REFERENCES = [
    "", "b", "/b", "b/", "../b", "./b", "?x=1", "#part", "//other.example/b", "a:b", "b.json", "/",
    "https://other.example/c?d", "b//c", "a b", "..", "~b", "b?c=d#e",
]  # fmt: skip


@pytest.mark.parametrize("reference", REFERENCES)
@pytest.mark.parametrize("base", ["https://api.example", "https://api.example/v1/a?q=1#f"])
def test_references_are_joined_as_they_always_were(base: str, reference: str) -> None:
    def joined(kind: type) -> str:
        try:
            return str(kind(base).join(reference))
        except (ValueError, httpx2.InvalidURL):
            return "refused"

    assert joined(Url) == joined(httpx2.URL)


@pytest.mark.parametrize("query", ["sig=a%2Cb,c", "sig=%41%2f%2F&x=+", "a=1&&b=&=c", "x=%zz"])
def test_a_signed_link_is_sent_as_it_was_written(query: str) -> None:
    assert Url(f"https://api.example/a%2Fb?{query}").target == f"/a%2Fb?{query}"


@pytest.mark.parametrize(
    "text",
    ["http://a b/", "http://a\tb/", "http://a\r\n/", "http://[::1/", "http://::1/", "http://a:b/",
     "http://a:99999/", "http://a:80:80/", "http://a/\x00", "http://256.1.1.1/", "http://-/",
     "http://a%41/", "http://a\\@b/", "http://a,b/", "http://[fe80::1%eth0]/", "http://①②⑦.0.0.1/",
     "http://[::1]x/", "http://" + "a" * 70_000],
)  # fmt: skip
def test_what_is_no_url_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"URL|host|port|path"):
        Url(text)


def test_the_host_is_what_follows_the_last_at_sign() -> None:
    assert Url("https://good.example:1@evil.example/").host == "evil.example"
    assert Url("https://good.example#@evil.example/").host == "good.example"
    assert Url("https://good.example?@evil.example/").host == "good.example"
    assert "secret" not in repr(Url("https://me:secret@api.example/secret?secret"))


@pytest.mark.parametrize(
    ("header", "links"),
    [
        (
            '<https://a/?p=2>; rel="next", </>; rel="first"',
            {"next": "https://a/?p=2", "first": "/"},
        ),
        ("</a,b;c>;rel=next", {"next": "/a,b;c"}),
        ('</2>; title="a, b; c"; rel="next"', {"next": "/2"}),
        ("</lone>", {"/lone": "/lone"}),
        ("nonsense <", {}),
    ],
)
def test_links_are_read_by_their_relation(header: str, links: dict[str, str]) -> None:
    assert {rel: link["url"] for rel, link in read_links(header).items()} == links


def test_headers_have_names_in_any_case_and_several_values() -> None:
    from multidict import CIMultiDict

    headers = Headers(CIMultiDict([("X-A", "1"), ("x-a", "2"), ("ETag", '"v"')]))

    assert (headers["x-A"], headers.get("etag"), headers.get("none")) == ("1, 2", '"v"', None)
    assert headers.get_list("x-a") == ["1", "2"]
    assert (list(headers), len(headers), "X-a" in headers) == (["x-a", "etag"], 2, True)


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [
        ("text/plain", "é".encode(), "é"),
        ("text/plain; charset=latin-1", b"\xe9", "é"),
        ('text/plain; charset="UTF-8"', b"\xff", "\ufffd"),
        ("text/plain; charset=rot13", b"a", "a"),
        ("text/plain; charset=nonsense", "é".encode(), "é"),
    ],
)
def test_text_has_the_encoding_that_the_server_names(kind: str, body: bytes, text: str) -> None:
    assert Response(200, {"content-type": kind}, body).text == text
