"""An object store in an S3 bucket. Put-if-absent uses ``If-None-Match``."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from hashlib import md5
from urllib.parse import unquote_plus
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape

from eoslog.errors import InvalidOption, StoreAccessDenied, StoreUnavailable
from eoslog.storage.environment import Environment
from eoslog.storage.http_store import Answer, HttpStore, Page, Request
from eoslog.storage.object_store import ObjectInfo, PutOutcome
from eoslog.storage.s3_answers import meaning_of_refusal, meaning_of_silence
from eoslog.storage.s3_options import S3Options
from eoslog.storage.s3_transport import S3Transport
from eoslog.storage.xml_answers import text_of, xml_of

_DIRECTORY_BUCKET = "--x-s3"
_MOST_DELETED = 1000
"""How many objects one request may delete."""


class S3Store(HttpStore):
    """Objects below ``prefix`` in ``bucket``."""

    service = "S3"
    _options: S3Options

    def __init__(self, bucket: str, prefix: str, environment: Environment, options: S3Options | None = None) -> None:
        if not bucket:
            raise InvalidOption("An S3 URL names a bucket: s3://bucket/prefix.")
        super().__init__(f"s3://{bucket}", prefix, environment, options or S3Options())
        # A directory bucket (S3 Express) lists only whole directories, and does not support start-after.
        self.lists_in_order = not bucket.endswith(_DIRECTORY_BUCKET)
        self.lists_only_directories = not self.lists_in_order
        self._bucket = bucket

    def __repr__(self) -> str:
        return f"S3Store({self.url!r}, {self._options!r})"

    def unfinished_uploads(self) -> Iterator[str]:
        query = {"uploads": "", "prefix": self._key_prefix}
        while True:
            request = Request("LIST", "ListMultipartUploads", "GET", query=query)
            answer = self._environment.uninterrupted(partial(self._answer, request, ""))
            with self._understood("the list of uploads"):
                root = xml_of(answer, "ListMultipartUploadsResult")
                keys = [text_of(upload, "Key") for upload in root.iterfind("{*}Upload")]
                is_last = not _is_truncated(root)
                if not is_last:
                    query["key-marker"] = text_of(root, "NextKeyMarker")
                    query["upload-id-marker"] = text_of(root, "NextUploadIdMarker")
            for key in keys:
                yield key[len(self._key_prefix) :]
            if is_last:
                return

    def delete_many(self, paths: Sequence[str]) -> None:
        # One request deletes many objects.
        keys = [self._key(path) for path in paths]
        self._run_all(
            [partial(self._delete_batch, keys[at : at + _MOST_DELETED]) for at in range(0, len(keys), _MOST_DELETED)]
        )

    def _delete_batch(self, keys: Sequence[str]) -> None:
        objects = "".join(f"<Object><Key>{escape(key)}</Key></Object>" for key in keys)
        body = f'<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{objects}<Quiet>true</Quiet></Delete>'.encode()
        headers = {
            "Content-MD5": b64encode(md5(body, usedforsecurity=False).digest()).decode(),
            "Content-Type": "application/xml",
        }
        request = Request("DELETE", "DeleteObjects", "POST", query={"delete": ""}, headers=headers, body=body)

        def attempt() -> None:
            answer = self._check(request, self._send(request, "several objects"), "several objects")
            with self._understood("the outcome of a deletion"):
                failures = xml_of(answer, "DeleteResult").findall("{*}Error") if answer.body else []
            for each in failures:
                code, path = each.findtext("{*}Code"), str(each.findtext("{*}Key"))[len(self._key_prefix) :]
                if code == "AccessDenied":
                    raise StoreAccessDenied(
                        f"{self.url}: DeleteObjects of {path!r} was refused with {code}: check credentials,"
                        " permissions and options."
                    )
                if code not in ("NoSuchKey", "NoSuchVersion"):
                    raise StoreUnavailable(f"{self.url}: {path!r} was not deleted ({code}). Try again.")

        self._retried(attempt)

    def _new_transport(self) -> S3Transport:
        return S3Transport(self._bucket, self._options, self.url, self._clocks)

    def _outcome(self, answer: Answer) -> PutOutcome | None:
        return {412: PutOutcome.EXISTS, 409: PutOutcome.CONFLICT}.get(answer.status)

    def _put_request(self, key: str, body: bytes, *, if_absent: bool) -> Request:
        headers = {**self._options.headers_of_puts, **({"If-None-Match": "*"} if if_absent else {})}
        return Request("PUT", "PutObject", "PUT", key, headers=headers, body=body)

    def _get_request(self, key: str, byte_range: str | None) -> Request:
        return Request("GET", "GetObject", "GET", key, headers={"Range": byte_range} if byte_range else {})

    def _delete_request(self, key: str) -> Request:
        return Request("DELETE", "DeleteObject", "DELETE", key)

    def _list_request(self, prefix: str, *, start_after: str, limit: int, only_directories: bool, page: str) -> Request:
        given = {
            "delimiter": "/" if only_directories else "",
            "start-after": start_after,
            "continuation-token": page,
        }
        query = {"list-type": "2", "encoding-type": "url", "max-keys": str(limit), "prefix": prefix}
        query |= {name: value for name, value in given.items() if value}
        return Request("LIST", "ListObjectsV2", "GET", query=query)

    def _page(self, answer: Answer) -> Page:
        root = xml_of(answer, "ListBucketResult")
        decoded = unquote_plus if root.findtext("{*}EncodingType") == "url" else str
        objects = [
            ObjectInfo(
                decoded(text_of(each, "Key")),
                int(text_of(each, "Size")),
                int(datetime.fromisoformat(text_of(each, "LastModified")).timestamp() * 1000),
            )
            for each in root.iterfind("{*}Contents")
        ]
        directories = [decoded(text_of(each, "Prefix")) for each in root.iterfind("{*}CommonPrefixes")]
        return Page(objects, directories, text_of(root, "NextContinuationToken") if _is_truncated(root) else "")

    def _refusal(self, request: Request, answer: Answer, path: str) -> Exception:
        return meaning_of_refusal(answer, request.operation, self.url, path, of_an_object=bool(request.key))

    def _silence(self, error: Exception, path: str) -> Exception:
        return meaning_of_silence(error, self.url, path)


def _is_truncated(page: Element) -> bool:
    return page.findtext("{*}IsTruncated") == "true"
