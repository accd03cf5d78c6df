"""The files that pages load: style sheet, script, icon and font.

Owns their parts and their caching. The font is that of the package font-manrope (SIL Open Font
License); without the package pages have the font of the system.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from starlette.responses import PlainTextResponse, Response

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

FONT: Final = "manrope.ttf"
FONT_PACKAGE: Final = "font_manrope"
FONT_FILE: Final = "Manrope-VariableFont_wght.ttf"
FONT_FACE: Final = (
    b'@font-face { font-family: "Manrope"; font-weight: 200 800; font-display: swap; '
    b'src: url("/static/manrope.ttf") format("truetype"); }\n'
)
# Each file: its kind, and the parts that it is made of.
STATIC: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "style.css": ("text/css", ("style.css", "forms.css")),
    "dashboard.js": (
        "text/javascript",
        ("dashboard.js", "times.js", "tables.js", "charts.js", "forms.js"),
    ),
    "icon.svg": ("image/svg+xml", ("icon.svg",)),
}
SHORT_CACHE: Final = "max-age=60"
LONG_CACHE: Final = "max-age=604800, immutable"


@cache
def font_path() -> Path | None:
    """The file of the font; None if its package is not installed."""
    spec = find_spec(FONT_PACKAGE)
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        path = Path(folder, "files", FONT_FILE)
        if path.is_file():
            return path
    return None


async def static_file(request: Request) -> Response:
    """Answer with a file of pages."""
    name = request.path_params["name"]
    path = font_path()
    if name == FONT and path is not None:
        headers = {"cache-control": LONG_CACHE}
        return Response(path.read_bytes(), media_type="font/ttf", headers=headers)
    if name not in STATIC:
        return PlainTextResponse("There is no such file.", 404)
    kind, parts = STATIC[name]
    folder = files("tradewind.dashboard.look").joinpath("static")
    data = b"\n".join(folder.joinpath(part).read_bytes() for part in parts)
    if name == "style.css" and path is not None:
        data = FONT_FACE + data
    return Response(data, media_type=kind, headers={"cache-control": SHORT_CACHE})
