"""JSON lines that can be cut, and trackers."""

import json
import sys
import types

from anyformer.train import log
from anyformer.train.log import Log
from anyformer.train.progress import Progress, told


def test_lines_are_strict_json_and_can_be_cut(tmp_path):
    lines = Log(tmp_path)
    lines.write({"step": 1, "loss": 0.1 + 0.2})
    mark = lines.mark()
    lines.write({"step": 2, "loss": float("nan"), "norm": float("inf")})
    lines.time({"step": 2, "seconds": 1.0})
    first = log.read(tmp_path)
    assert first[1] == {"step": 2, "loss": "nan", "norm": "inf"}
    lines.cut(mark)
    lines.write({"step": 2, "loss": 3.0})
    lines.cut(10**6)  # a log that is shorter than it was stays what it is
    lines.close()
    assert [r["loss"] for r in log.read(tmp_path)] == [0.1 + 0.2, 3.0]
    assert json.loads((tmp_path / log.SPEED).read_text())["seconds"] == 1.0


def test_a_line_cut_short_is_left_out(tmp_path):
    (tmp_path / log.METRICS).write_text('{"step": 1}\n{"st')
    assert log.read(tmp_path) == [{"step": 1}]


def test_trackers_are_told(tmp_path, monkeypatch):
    seen = []
    fake = types.ModuleType("trackio")
    fake.init = lambda **options: seen.append(options)
    fake.log = lambda numbers, step: seen.append((step, numbers))
    fake.finish = lambda: seen.append("end")
    monkeypatch.setitem(sys.modules, "trackio", fake)
    lines = Log(tmp_path, ("trackio",), "name")
    lines.write({"step": 4, "loss": 1.0, "event": "x"})
    lines.close()
    assert seen == [{"project": "anyformer", "name": "name"}, (4, {"loss": 1.0}), "end"]


def test_progress_says_loss_speed_and_memory(capsys):
    speed = {
        "tokens_per_second": 1234.5,
        "share_of_peak": 0.42,
        "peak": "measured",
        "memory": 2.0**30,
    }
    assert told(1.5, speed) == "loss 1.5000, 1,234 tokens/s, 42% of the measured peak, 1.0 GiB"
    bar = Progress(10, shown=True)
    bar.show(3, 1.5, speed)
    bar.say("[bold]a line[/bold]")
    bar.close()
    bar.say("after")
    shown = capsys.readouterr()
    assert "[bold]a line[/bold]" in shown.err
    assert "after" in shown.err
    assert not shown.out
