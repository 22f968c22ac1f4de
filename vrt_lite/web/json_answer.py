"""An answer in JSON."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import JSONResponse


class JsonAnswer(JSONResponse):
    """JSON in ASCII alone: a file name that is not UTF-8 has characters that only an escape can carry."""

    def render(self, content: Any) -> bytes:
        """Encode the content."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")
