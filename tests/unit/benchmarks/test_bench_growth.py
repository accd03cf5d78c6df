"""Growth curves: their shape, their charts, and which points a run measures."""

import json
import math
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import pytest
from benchmarks import growth
from benchmarks.build import ensure_loadgen
from benchmarks.growth_axes import AXES, Axis, Point
from benchmarks.growth_chart import Panel, chart, short, value_scale
from benchmarks.growth_shape import FLAT, LOGARITHMIC, POWER, UNKNOWN, each_bytes, shape_of
from benchmarks.runner import OURS, PEER
from benchmarks.servers import Server, ServerError

SIZES = [1, 10, 100, 1000, 10_000, 100_000, 1_000_000]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (lambda _: 7.0, FLAT),
        (lambda size: 7.0 + 0.3 * math.log10(size), FLAT),
        (lambda size: 2.0 + math.log10(size), LOGARITHMIC),
        (lambda size: 5.0 * size**0.09, LOGARITHMIC),
        (lambda size: 0.5 * math.sqrt(size), POWER),
        (lambda size: 3.0 * size, POWER),
        (lambda size: size * size, POWER),
    ],
)
def test_shape_of_a_curve_is_that_of_its_formula(
    value: Callable[[float], float], kind: str
) -> None:
    assert shape_of([(size, value(size)) for size in SIZES]).kind == kind


def test_exponent_is_that_of_the_power() -> None:
    shape = shape_of([(size, 3.0 * size**0.5) for size in SIZES])
    assert shape.exponent == pytest.approx(0.5)
    assert shape.growth == pytest.approx(1000.0)
    assert str(shape) == "grows as n^0.50"


@pytest.mark.parametrize("pairs", [[], [(1, 2.0), (10, 4.0)], [(1, 2.0), (10, 0.0), (100, 2.0)]])
def test_shape_of_too_little_is_unknown(pairs: list[tuple[float, float]]) -> None:
    assert shape_of(pairs).kind == UNKNOWN
    assert str(shape_of(pairs)) == "n/a"


def test_memory_of_each_thing_leaves_out_what_a_server_needs_anyway() -> None:
    assert each_bytes([(1, 20.0), (1025, 21.0)]) == 1024
    assert each_bytes([(5, 20.0)]) == 0.0


def test_values_far_apart_are_drawn_on_a_logarithmic_axis() -> None:
    near, far = value_scale([3.0, 7.0]), value_scale([0.5, 900.0])
    assert (near.low, near.high, near.is_logarithmic) == (0.0, 8.0, False)
    assert (far.low, far.high, far.is_logarithmic) == (0.1, 1000.0, True)
    assert far.place(0.1) == 0.0
    assert far.place(10.0) == pytest.approx(far.length / 2)
    assert value_scale([0.0, 0.0]).high == 1.0


@pytest.mark.parametrize(
    ("value", "expected"), [(0.25, "0.25"), (1, "1"), (1000, "1k"), (10_000_000, "10M")]
)
def test_ticks_are_short(value: float, expected: str) -> None:
    assert short(value) == expected


def test_chart_has_a_line_per_server_in_every_panel_and_all_points_in_the_picture() -> None:
    lines = {"A & B": [(1, 1.0), (1000, 2.0)], "C": [(1, 5.0), (1000, 500.0)]}
    document = chart("publish <x>", "streams", [Panel("CPU", lines), Panel("none", {})])
    root = ElementTree.fromstring(document)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    assert len(root.findall(f"{SVG}polyline")) == 2
    dots = [each for each in root.findall(f"{SVG}circle") if each.attrib["r"] == "3"]
    places = [(float(dot.attrib["cx"]), float(dot.attrib["cy"])) for dot in dots]
    assert len(set(places)) == 4
    assert all(0 < x < width and 0 < y < height for x, y in places)
    words = [each.text for each in root.findall(f"{SVG}text")]
    assert {"publish <x>", "A & B", "C", "CPU", "none", "streams"} <= set(words)


def test_larger_values_are_drawn_higher() -> None:
    root = ElementTree.fromstring(chart("t", "x", [Panel("p", {"A": [(1, 1.0), (10, 2.0)]})]))
    line = root.find(f"{SVG}polyline")
    assert line is not None
    (x_1, y_1), (x_2, y_2) = (
        tuple(map(float, each.split(","))) for each in line.attrib["points"].split()
    )
    assert x_1 < x_2
    assert y_1 > y_2


class TestAxis:
    """An axis whose points are made up, on servers that are not started."""

    @pytest.fixture(autouse=True)
    def no_server(self, monkeypatch: pytest.MonkeyPatch) -> None:
        ensure_loadgen()
        monkeypatch.setattr(Server, "__enter__", lambda server: server)
        monkeypatch.setattr(Server, "__exit__", lambda *_: None)

    def axis(self, run: Callable[[Server, int], Point]) -> Axis:
        return Axis("things", "things", "an operation", (1, 10, 100, 1000), run)

    def test_servers_are_measured_in_turn_up_to_the_largest_size_wanted(self) -> None:
        asked = []

        def run(server: Server, size: int) -> Point:
            asked.append((server.template, size))
            return Point(size, 1.0, 2.0, 3.0)

        curves = growth.measure(self.axis(run), {OURS: "a", PEER: "b"}, 100, lambda _: None)
        assert asked == [("a", 1), ("b", 1), ("a", 10), ("b", 10), ("a", 100), ("b", 100)]
        assert [point.size for point in curves[PEER]] == [1, 10, 100]

    def test_server_that_fails_ends_its_own_curve_with_a_reason(self) -> None:
        said: list[str] = []

        def run(server: Server, size: int) -> Point:
            if server.template == "b" and size == 10:
                raise ServerError("it is gone")
            return Point(size, 1.0, 2.0, 3.0)

        curves = growth.measure(self.axis(run), {OURS: "a", PEER: "b"}, None, said.append)
        assert [len(curves[OURS]), len(curves[PEER])] == [4, 1]
        assert "things: nats-server failed with 10 things: it is gone" in said
        rows = growth.rows(self.axis(run), curves)
        assert "| things, 1 to 1,000 | CPU time of the operation, us | Tradewind |" in rows[0]
        assert rows[0].endswith("| 1.00 | 1.00 | flat (1.00x) |")
        assert rows[1].endswith("| n/a |")


def test_points_are_written_with_what_they_were_measured_on() -> None:
    written = json.loads(growth.document({"things": {OURS: [Point(10, 1.5, 2.0, 3.0)]}}))
    point = {"size": 10, "cpu_us": 1.5, "p50_us": 2.0, "memory_mib": 3.0}
    assert written["points"] == {"things": {"ours": [point]}}
    assert written["machine"]["cores"] >= 1


def test_sizes_never_end_before_the_first() -> None:
    deletes = next(axis for axis in AXES if axis.name == "deletes")
    assert growth.sizes_of(deletes, 1) == [1000]
    assert growth.sizes_of(deletes, None)[-1] == 10_000_000


def test_unknown_axis_is_named_with_those_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        growth.main(["--only", "subjects,trees"])
    assert ended.value.code == 2
    assert "no axis 'trees'; there are subjects, streams" in capsys.readouterr().err


def test_axes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert growth.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [axis.name for axis in AXES]
