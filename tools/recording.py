"""Records docs/images/demo.svg: twenty seconds of `tradewind demo` at a terminal, as an animation.

    .venv/bin/python tools/recording.py

Runs the demo in an empty folder on a terminal of its own, looks at the screen once a second, and
writes the first twenty screens that differ from the one before: seconds in which nothing moves, as
while Spark starts, are left out. Uses the network of this machine only, and no other program.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from html import escape
from pathlib import Path
from typing import Final

PICTURE: Final = Path(__file__).parent.parent / "docs" / "images" / "demo.svg"
ROWS: Final = 32
COLUMNS: Final = 100
FRAMES: Final = 20
SECONDS_MAX: Final = 180
CELL_WIDTH: Final = 8.4
LINE_HEIGHT: Final = 18
MARGIN: Final = 16
CONTROL: Final = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|\x1b\].*?(?:\x07|\x1b\\)|\x1b[=>()][B0]?")
COLOURS: Final = ("#8b949e", "#ff7b72", "#3fb950", "#d29922", "#58a6ff", "#bc8cff", "#39c5cf")
BLACK, WHITE = "#484f58", "#c9d1d9"
PALETTE: Final = (BLACK, *COLOURS[1:], WHITE, *COLOURS, WHITE)
Style = tuple[str, bool]
PLAIN: Final[Style] = ("", False)
Cell = tuple[str, Style]


class ScreenOfText:
    """The part of a terminal that the demo uses: lines, cursor moves, erasing and colours."""

    def __init__(self) -> None:
        self.lines: list[list[Cell]] = [[]]
        self.row = self.column = 0
        self.style = PLAIN

    def feed(self, text: str) -> None:
        """Show what a program has printed."""
        at = 0
        while at < len(text):
            if found := CONTROL.match(text, at):
                if found[2]:
                    self._control(found[1], found[2])
                at = found.end()
                continue
            self._put(text[at])
            at += 1

    def picture(self) -> list[list[Cell]]:
        """The lines that are visible now."""
        return [list(line) for line in self.lines[-ROWS:]]

    def _put(self, character: str) -> None:
        if character == "\r":
            self.column = 0
        elif character == "\n":
            self.row += 1
            if self.row == len(self.lines):
                self.lines.append([])
        elif character >= " ":
            if self.column == COLUMNS:
                self._put("\r")
                self._put("\n")
            line = self.lines[self.row]
            line.extend([(" ", PLAIN)] * (self.column + 1 - len(line)))
            line[self.column] = (character, self.style)
            self.column += 1

    def _control(self, arguments: str, letter: str) -> None:
        count = int(arguments) if arguments.isdigit() else 1
        if letter == "A":
            self.row = max(0, self.row - count)
        elif letter == "K" and arguments == "2":
            self.lines[self.row] = []
        elif letter == "K":
            del self.lines[self.row][self.column :]
        elif letter == "m":
            for number in arguments.split(";"):
                self._colour(int(number or 0))

    def _colour(self, number: int) -> None:
        colour, is_bold = self.style
        if number == 0:
            self.style = PLAIN
        elif number == 1:
            self.style = (colour, True)
        elif number == 2:
            self.style = (COLOURS[0], is_bold)
        elif 30 <= number <= 37:
            self.style = (PALETTE[number - 30], is_bold)
        elif 90 <= number <= 97:
            self.style = (PALETTE[number - 82], is_bold)


def record(command: list[str], folder: str) -> list[list[list[Cell]]]:
    """The first screens of a program that differ from the one before, one of each second."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = os.environ | {"TERM": "xterm", "COLUMNS": str(COLUMNS), "LINES": str(ROWS)}
    process = subprocess.Popen(  # noqa: S603 - this program
        command, cwd=folder, env=environment, stdin=its, stdout=its, stderr=its
    )
    os.close(its)
    screen, shown = ScreenOfText(), b""
    frames: list[list[list[Cell]]] = []
    end = time.monotonic() + SECONDS_MAX
    look = time.monotonic() + 1
    try:
        while len(frames) < FRAMES and time.monotonic() < end:
            if select.select([ours], [], [], max(0.0, look - time.monotonic()))[0]:
                shown += os.read(ours, 65536)
                # A read may end within a character or a control sequence.
                whole = shown.rpartition(b"\n")
                screen.feed((whole[0] + whole[1]).decode().replace(f"{folder}/", ""))
                shown = whole[2]
            if time.monotonic() >= look:
                look += 1
                picture = screen.picture()
                if any(picture) and (not frames or frames[-1] != picture):
                    frames.append(picture)
    finally:
        process.terminate()
        while True:  # what it prints at the end, so that it can end
            try:
                if not os.read(ours, 65536):
                    break
            except OSError:
                break
        process.wait()
        os.close(ours)
    return frames


def text_of_line(line: list[Cell], row: int) -> str:
    """A line as an element, with a part for each run of one style."""
    parts = []
    start = 0
    while start < len(line):
        style = line[start][1]
        stop = start
        while stop < len(line) and line[stop][1] == style:
            stop += 1
        text = "".join(character for character, _ in line[start:stop])
        if text.strip():
            x = MARGIN + start * CELL_WIDTH
            colour = f' fill="{style[0]}"' if style[0] else ""
            weight = ' font-weight="bold"' if style[1] else ""
            length = f' textLength="{len(text) * CELL_WIDTH:.1f}"'
            parts.append(f'<tspan x="{x:.1f}"{colour}{weight}{length}>{escape(text)}</tspan>')
        start = stop
    if not parts:
        return ""
    return f'<text y="{MARGIN + (row + 1) * LINE_HEIGHT}">{"".join(parts)}</text>'


def animation(frames: list[list[list[Cell]]]) -> str:
    """The frames as one picture that shows each for a second; the last one if it cannot move."""
    width = 2 * MARGIN + COLUMNS * CELL_WIDTH
    height = 2 * MARGIN + (max(len(frame) for frame in frames) + 1) * LINE_HEIGHT
    share = 100 / len(frames)
    groups = [
        f'<g class="frame" style="animation-delay:{number}s">'
        + "".join(text_of_line(line, row) for row, line in enumerate(frame))
        + "</g>"
        for number, frame in enumerate(frames)
    ]
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}">
<title>tradewind demo</title>
<style>
text {{ font: 14px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: {WHITE};
  white-space: pre; }}
.frame {{ visibility: hidden; animation: show {len(frames)}s step-end infinite; }}
@keyframes show {{ 0% {{ visibility: visible }} {share:.3f}% {{ visibility: hidden }} }}
@media (prefers-reduced-motion: reduce) {{ .frame {{ animation: none }}
  .frame:last-child {{ visibility: visible }} }}
</style>
<rect width="100%" height="100%" rx="8" fill="#0d1117"/>
{chr(10).join(groups)}
</svg>
"""


def main() -> int:
    """Record the demo."""
    with tempfile.TemporaryDirectory() as folder:
        program = [sys.executable, "-m", "tradewind.cli", "demo"]
        frames = record(program, folder)
    if len(frames) < FRAMES:
        sys.stderr.write(f"only {len(frames)} screens in {SECONDS_MAX} s\n")
        return 1
    PICTURE.write_text(animation(frames))
    return 0


if __name__ == "__main__":
    sys.exit(main())
