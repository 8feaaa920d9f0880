"""The `tsrun` command as a process: exit codes, signals, output, and what it imports."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from http.client import HTTPConnection, IncompleteRead
from pathlib import Path
from typing import Any

import fake_tsrun
import pytest
from click.testing import CliRunner, Result
from fake_engine import FakeEngine

from tsruntime.cli import main
from tsruntime.server.listen import bind
from tsruntime.server.loading import load_intake
from tsruntime.server.serve import serve

TESTS = Path(__file__).parents[1]

Start = Callable[..., "Tsrun"]


class Tsrun:
    """A running `tsrun` over a fake engine."""

    def __init__(self, *args: str | Path, **spec: float) -> None:
        command = [sys.executable, TESTS / "fake_tsrun.py", json.dumps(spec), *args]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(TESTS)},
        )

    def url(self) -> str:
        """The server's address, once it is ready."""
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        match = re.fullmatch(r"tsrun: serving (\S+) on (http://\S+)\n", line)
        assert match, line
        return match[2]

    def end(self, timeout: float = 20) -> tuple[int, str, str]:
        """Exit code, standard output and standard error."""
        out, err = self.process.communicate(timeout=timeout)
        return self.process.returncode, out, err


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts `tsrun`; none is left behind."""
    started: list[Tsrun] = []

    def run(*args: str | Path, **spec: float) -> Tsrun:
        started.append(Tsrun(*args, **spec))
        return started[-1]

    yield run
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.communicate()


def send(url: str, **fields: object) -> HTTPConnection:
    """A connection on which a request has been sent; `getresponse` waits for the answer."""
    host = url.removeprefix("http://")
    connection = HTTPConnection(host, timeout=20)
    connection.request("POST", "/v1/completions", json.dumps({"prompt": "ab", **fields}))
    return connection


def get(connection: HTTPConnection, path: str) -> tuple[int, Any]:
    connection.request("GET", path)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def tsrun(*args: str | Path) -> subprocess.CompletedProcess[str]:
    """The installed command, with no engine."""
    command = [sys.executable, "-c", "from tsruntime.cli import main; main()", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=30)


def test_help_is_quick_and_imports_little() -> None:
    before = os.times()
    code = (
        "import sys\nfrom tsruntime.cli import main\n"
        "try: main(['--help'])\n"
        "finally: print([m for m in ('torch', 'pydantic', 'starlette') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    after = os.times()
    assert shown.returncode == 0
    assert "Serve ARTIFACT over the OpenAI API" in shown.stdout
    assert shown.stdout.endswith("\n[]\n")
    spent = (after.children_user - before.children_user) + (
        after.children_system - before.children_system
    )
    assert spent < 0.5  # seconds of CPU, which a busy machine does not stretch


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "Missing argument 'ARTIFACT'"),
        (("a", "--nonsense"), "No such option '--nonsense'"),
        (("a", "--port", "70000"), "70000 is not in the range 0<=x<=65535"),
        (("a", "--prompt", "x", "--bench"), "--prompt and --bench exclude each other"),
        (("a", "--prompt", "x", "--port", "80"), "--port goes with serving, not with --prompt"),
        (("a", "--raw"), "--raw goes with --prompt, not with serving"),
        (("a", "--top-k", "5"), "--top-k goes with --prompt, not with serving"),
        (("a", "--bench", "--temperature", "1"), "--temperature goes with --prompt, not with"),
        (("a", "--json"), "--json goes with --bench, not with serving"),
        (("a", "--prompt", "x", "--max-tokens", "0"), "0 is not in the range x>=1"),
        (("a", "--prompt", "x", "--temperature", "-1"), "-1.0 is not in the range x>=0"),
        (("a", "--bench", "--streams", "0"), "0 is not in the range x>=1"),
    ],
)
def test_usage_errors_exit_2(args: tuple[str, ...], message: str) -> None:
    ended = CliRunner().invoke(main, args)
    assert ended.exit_code == 2
    assert message in ended.stderr
    assert ended.stdout == ""


def test_a_missing_artifact_is_one_clear_error(tmp_path: Path) -> None:
    for mode in (("--port", "0"), ("--prompt", "x"), ("--bench",)):
        ended = CliRunner().invoke(main, [str(tmp_path / "none"), *mode])
        assert ended.exit_code == 1
        assert ended.stderr.startswith("error[TS0501]: ")
        assert len(ended.stderr.splitlines()) == 2


def test_a_port_in_use_is_told_before_anything_is_loaded(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = tsrun(tmp_path / "not even an artifact", "--port", str(port))
    assert ended.returncode == 1
    assert ended.stderr == (
        f"error[TS0650]: cannot listen on 127.0.0.1:{port}: the port is in use\n"
        "  fix: stop what listens there, or give another --port (0 takes any free one)\n"
    )


def test_a_host_that_is_not_here(tmp_path: Path) -> None:
    ended = CliRunner().invoke(main, [str(tmp_path), "--host", "192.0.2.1"])
    assert ended.exit_code == 1
    assert "error[TS0650]: cannot listen on 192.0.2.1:8000: " in ended.stderr


def test_the_port_is_taken_but_silent_until_ready(start: Start, artifact: Path) -> None:
    """Two servers that load at once may both bind; the second finds out when it listens."""
    first = start(artifact, "--port", "0")
    port = first.url().rsplit(":", 1)[1]
    second = start(artifact, "--port", port)
    code, _, err = second.end()
    assert code == 1
    assert f"cannot listen on 127.0.0.1:{port}: the port is in use" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_drains_and_exits_0(start: Start, artifact: Path, number: signal.Signals) -> None:
    server = start(artifact, "--port", "0", step_seconds=0.02)
    url = server.url()
    whole = send(url, max_tokens=60)
    stream = send(url, max_tokens=60, stream=True)
    events = stream.getresponse()  # its first token is there, so both requests are in the engine
    server.process.send_signal(number)
    assert events.read().endswith(b"data: [DONE]\n\n")
    assert json.loads(whole.getresponse().read())["usage"]["completion_tokens"] == 60
    assert server.end() == (0, "", "")
    with pytest.raises(ConnectionRefusedError):
        send(url)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_ranks_start_exits_0(
    start: Start, artifact: Path, number: signal.Signals
) -> None:
    assert start(artifact, "--port", "0", signal_at_launch=number).end() == (0, "", "")


def test_no_new_requests_while_draining(start: Start, artifact: Path) -> None:
    server = start(artifact, "--port", "0", step_seconds=0.05)
    url = server.url()
    stream = send(url, max_tokens=60, stream=True)
    events = stream.getresponse()
    server.process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + 4
    with pytest.raises(ConnectionError):
        while time.monotonic() < deadline:
            send(url).close()
    assert server.process.poll() is None
    assert events.read().endswith(b"data: [DONE]\n\n")
    assert server.end() == (0, "", "")


def test_an_idle_server_ends_at_once(start: Start, artifact: Path) -> None:
    server = start(artifact, "--port", "0", "--served-model-name", "my/model")
    kept_open = HTTPConnection(server.url().removeprefix("http://"), timeout=20)
    assert get(kept_open, "/v1/models")[1]["data"][0]["id"] == "my/model"
    assert get(kept_open, "/health") == (200, {"status": "ok"})
    started = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    assert server.end() == (0, "", "")
    assert time.monotonic() - started < 3


def test_a_signal_while_loading_ends_at_once(artifact: Path) -> None:
    class Loading(FakeEngine):
        """Never ready; sends SIGTERM when the front end starts to watch it."""

        @property
        def sentinels(self) -> list[int]:
            if not sent:
                sent.append(None)
                os.kill(os.getpid(), signal.SIGTERM)
            return super().sentinels

    sent: list[None] = []
    engine = Loading(ready=False)
    try:
        with bind("127.0.0.1", 0) as sock:
            assert serve(engine, load_intake(artifact, None), sock, "127.0.0.1") == 0
    finally:
        engine.stop(0)
    assert sent


def test_a_second_signal_ends_at_once(start: Start, artifact: Path) -> None:
    server = start(artifact, "--port", "0", step_seconds=0.1)
    events = send(server.url(), max_tokens=190, stream=True).getresponse()
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    assert server.process.poll() is None
    server.process.send_signal(signal.SIGTERM)
    assert server.end(timeout=4) == (128 + signal.SIGTERM, "", "")
    with pytest.raises(IncompleteRead):
        events.read()


def test_a_killed_rank_ends_the_server_with_one_line(start: Start, artifact: Path) -> None:
    server = start(artifact, "--port", "0", step_seconds=0.02, die_after=2)
    url = server.url()
    stream = send(url, max_tokens=190, stream=True)
    events = stream.getresponse()
    started = time.monotonic()
    broken = send(url, max_tokens=190)
    assert b'data: {"error":{"message":"the engine has ended: rank 0' in events.read()
    assert broken.getresponse().status == 503
    code, out, err = server.end(timeout=5)
    assert time.monotonic() - started < 5
    assert (code, out) == (1, "")
    assert err == (
        "error[TS0651]: rank 0 (pid 42) was killed by SIGKILL\n"
        "  fix: start tsrun again; what the rank itself had to say stands above\n"
    )


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs `tsrun` here, each time over a fresh fake engine made with `spec`."""

    def run(*args: str | Path, **spec: float) -> Result:
        def launch(artifact: Path, trusted: Sequence[str]) -> FakeEngine:
            return fake_tsrun.engine_for(spec)

        monkeypatch.setattr("tsruntime.workers.launch.launch", launch)
        ended = CliRunner().invoke(main, [str(arg) for arg in args])
        assert ended.exception is None or isinstance(ended.exception, SystemExit)
        return ended

    return run


def test_prompt_streams_the_answer_to_standard_output(
    in_process: Callable[..., Result], artifact: Path
) -> None:
    ended = in_process(artifact, "--prompt", "ab", "--raw", "--max-tokens", "7")
    assert (ended.exit_code, ended.stdout, ended.stderr) == (0, "abababa\n", "")
    ended = in_process(artifact, "--prompt", "ab;", "--raw", "--stop", "b;", "--top-p", "0.5")
    assert (ended.exit_code, ended.stdout) == (0, "a\n")
    ended = in_process(artifact, "--prompt", "Hi", "--max-tokens", "12")
    assert ended.exit_code == 0
    assert ended.stdout.startswith("user\nHi")  # the rendered template less its special tokens


def test_prompt_that_does_not_fit(
    in_process: Callable[..., Result], artifact: Path, bare_artifact: Path
) -> None:
    ended = in_process(artifact, "--prompt", "a" * 300, "--raw")
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert "error[TS0652]: the prompt has 300 tokens, but max_model_len is 200" in ended.stderr
    ended = in_process(bare_artifact, "--prompt", "a")
    assert ended.exit_code == 1
    assert "built without a chat template" in ended.stderr
    assert "fix: give --raw" in ended.stderr


def test_prompt_with_a_killed_rank(in_process: Callable[..., Result], artifact: Path) -> None:
    ended = in_process(artifact, "--prompt", "a", step_seconds=0.01, die_after=1)
    assert ended.exit_code == 1
    assert ended.stderr.startswith("error[TS0651]: rank 0 (pid 42) was killed by SIGKILL\n")


def test_bench_prints_a_table_or_json(in_process: Callable[..., Result], artifact: Path) -> None:
    sizes = ("--streams", "3", "--prompt-tokens", "20", "--tokens", "10")
    ended = in_process(artifact, "--bench", *sizes, "--json")
    assert (ended.exit_code, ended.stderr) == (0, "")
    report = json.loads(ended.stdout)
    assert (report["model"], report["streams"], report["tokens"]) == ("tiny", 3, 10)
    ended = in_process(artifact, "--bench", *sizes)
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert re.search(r"output tokens/s\s+│\s+[\d.]+", ended.stdout)
    assert re.search(r"inter-token latency, p99\s+│\s+[\d.]+ ms", ended.stdout)
    ended = in_process(artifact, "--bench", "--prompt-tokens", "190")
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert "make 254, beyond max_model_len 200" in ended.stderr


def test_prompt_interrupted(start: Start, artifact: Path) -> None:
    asking = start(artifact, "--prompt", "a", "--raw", step_seconds=0.1)
    assert asking.process.stdout is not None
    assert asking.process.stdout.read(1) == "a"
    asking.process.send_signal(signal.SIGINT)
    code, out, err = asking.end(timeout=5)
    assert (code, err) == (130, "")
    assert len(out) < 100


def test_the_serving_process_loads_neither_torch_nor_the_compiler() -> None:
    code = (
        "import sys, tsruntime.cli, tsruntime.bench, tsruntime.server.serve, "
        "tsruntime.server.prompt, tsruntime.workers.launch\n"
        "heavy = ('torch', 'numpy', 'transformers', 'tscompile')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (found.stdout, found.stderr) == ("[]\n", "")
