"""Pages as tests read them."""

from __future__ import annotations

import re
from html import unescape

from httpx2 import Response
from starlette.testclient import TestClient


def csrf_token(browser: TestClient, path: str) -> str:
    (token, *_) = re.findall(r'name="csrf_token" value="([^"]+)"', browser.get(path).text)
    return str(token)


def words(response: Response) -> str:
    """The text of a page's content, without tags, on one line."""
    (content,) = re.findall(r"<main.*?</main>", response.text, re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", content)).replace("\u202f", "").split())


def problem(response: Response) -> str:
    """The error that a page shows."""
    (text,) = re.findall(r'role="alert">(.*?)</p>', response.text)
    return unescape(text)


def rows(response: Response, region: str) -> list[list[str]]:
    """The cells of the table in a region of a page, without its head."""
    (table,) = re.findall(rf'aria-label="{region}"[^>]*>\s*<table.*?<tbody>(.*?)</tbody>', response.text, re.DOTALL)
    return [
        [
            " ".join(unescape(re.sub(r"<[^>]*>", "", cell)).replace("\u202f", "").split())
            for cell in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.DOTALL)
        ]
        for row in re.findall(r"<tr.*?</tr>", table, re.DOTALL)
    ]
