"""Answers in XML, which S3, Azure and partly Google Cloud Storage send."""

from __future__ import annotations

from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from eoslog.storage.http_store import Answer

_LONGEST_XML = 16 * 1024 * 1024


def xml_of(answer: Answer, name: str) -> Element:
    """Return the root of an answer's XML. Raise ``ValueError`` if it has another form or another name."""
    root = _parsed(answer.body)
    if root.tag.rpartition("}")[2] != name:
        raise ValueError(f"{root.tag[:100]!r}")
    return root


def _parsed(body: bytes) -> Element:
    # The server is not trusted. Entities that a document declares may expand without limit. As text, the document has
    # no other encoding, in which the declaration would look different.
    text = body.decode("utf-8-sig")
    if len(text) > _LONGEST_XML or "<!DOCTYPE" in text:
        raise ValueError("a long document, or one with a document type")
    try:
        return ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(str(error)) from error


def detail_of_error(body: bytes, name: str) -> str:
    """Return an element of an error, such as ``Code``; empty if it is missing or the body has another form."""
    try:
        return _parsed(body).findtext(f".//{{*}}{name}") or ""
    except ValueError:
        return ""


def text_of(parent: Element, name: str) -> str:
    """Return the text of an element. Raise ``ValueError`` if there is none."""
    found = parent.findtext(f"{{*}}{name}")
    if not found:
        raise ValueError(f"no {name}")
    return found
