"""A study that is followed: what is served, to whom, and when it is made anew."""

import http.client
import json
import shutil
import threading
import time
from contextlib import contextmanager

import pytest

from anyformer.errors import StudyError
from anyformer.study import run, work
from anyformer.study.watch import Server, follow, over, state
from tests.study import tiny

pytest.importorskip("matplotlib", reason="charts need matplotlib")


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A study with one of its four runs done."""
    folder = tmp_path_factory.mktemp("watch")
    study = tiny.study(tiny.text(folder), title="<script>alert(1)</script>")
    found = run.begun(study, folder / "s", 1)
    work.do(found.home, found.keys[0])
    return found.home


@pytest.fixture
def home(begun, tmp_path):
    return shutil.copytree(begun, tmp_path / "s")


@pytest.fixture(scope="module")
def server(begun):
    with serving(begun) as found:
        yield found


@contextmanager
def serving(home):
    with Server(home, 0, every=0.1) as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def _ask(server, path="/", method="GET", host=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host or f"127.0.0.1:{server.server_port}")
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body.decode()


def test_the_page_and_the_state_are_served(server):
    answer, page = _ask(server)
    assert answer.status == 200 and answer.getheader("Cache-Control") == "no-store"
    assert answer.getheader("Content-Type") == "text/html; charset=utf-8"
    assert "1 of 4 runs are done" in page and "connect-src" in page
    assert "<script>alert" not in page and "&lt;script&gt;alert" in page
    answer, told = _ask(server, "/state")
    assert answer.status == 200 and json.loads(told)["over"] is False
    assert f'data-state="{json.loads(told)["state"]}"' in page
    answer, nothing = _ask(server, method="HEAD")
    assert answer.status == 200 and nothing == ""


@pytest.mark.parametrize(
    "path",
    [
        "/study.json", "/../study.json", "/..%2fstudy.json", "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd", "/state/", "/state?x", "/runs", "/./", "/report.html", "*",
        "/\\..\\study.json", "http://127.0.0.1/../x",
    ],
)  # fmt: skip
def test_nothing_else_is_served(server, path):
    answer, body = _ask(server, path)
    assert answer.status == 404 and body == "not found\n"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_changed(server, method):
    assert _ask(server, method=method)[0].status == 501


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example:80"])
def test_another_name_is_refused(server, host):
    answer, body = _ask(server, host=host)
    assert answer.status == 403 and body == "forbidden\n"
    assert _ask(server, host=f"localhost:{server.server_port}")[0].status == 200


def test_only_this_machine_is_listened_to(server):
    assert server.server_address[0] == "127.0.0.1"
    assert server.address == f"http://127.0.0.1:{server.server_port}/"


# Runs and the page's thread both set warnings aside for a while, and threads share their filters.
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
def test_the_page_follows_the_study(home):
    whole = (home / work.PLAN).read_text()
    with serving(home) as server:
        before = json.loads(_ask(server, "/state")[1])["state"]
        (home / work.PLAN).write_text("[")  # a file that is being written: the old page stays
        time.sleep(0.4)
        assert _ask(server)[0].status == 200 and server.maker.is_alive()
        (home / work.PLAN).write_text(whole)
        for key in work.planned(home):
            work.do(home, key)
        deadline = time.time() + 60
        while time.time() < deadline:
            told = json.loads(_ask(server, "/state")[1])
            if told["over"]:
                break
            time.sleep(0.1)
        assert told["over"] and told["state"] != before
        assert "All 4 runs have ended" in _ask(server)[1]


def test_a_port_that_is_taken(server, home):
    with pytest.raises(StudyError, match="0 for any that is free"):
        Server(home, server.server_port)
    with pytest.raises(StudyError, match="0 for any that is free"):
        Server(home, 70_000)


def test_following_ends_with_the_study(home):
    heard = []

    def hear(found):
        heard.append(found)
        for key in work.planned(home):
            work.do(home, key)

    before = state(home)
    follow(home, hear, threading.Event(), every=0.01)
    assert [over(found) for found in heard] == [False, True] and state(home) != before
    stop = threading.Event()
    stop.set()
    (home / work.RUNS / work.planned(home)[0] / work.OUTCOME).unlink()
    follow(home, heard.append, stop)
    assert not over(heard[-1])
