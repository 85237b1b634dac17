"""The text of the package's page: the README, in which links into the repository become plain text.

An installed package has no ``docs/`` beside it, so such a link would lead nowhere. The source distribution has the
pages.
"""

from __future__ import annotations

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

_RELATIVE_LINK = re.compile(r"\[([^\]]+)\]\((?!https?://|#)[^)\s]+\)")
_NOTE = "> The pages, settings and examples that this page names are in the source distribution.\n"


class ReadmeHook(MetadataHookInterface):
    """Makes the field ``readme``."""

    def update(self, metadata: dict[str, object]) -> None:
        """Set the field."""
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        title, _, rest = _RELATIVE_LINK.sub(r"\1", readme).partition("\n")
        metadata["readme"] = {"content-type": "text/markdown", "text": f"{title}\n\n{_NOTE}{rest}"}
