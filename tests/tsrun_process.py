"""`tsrun` as a process of its own, with the real openai client on it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx
import openai
import psutil
from prometheus_client.parser import text_string_to_metric_families


class Server:
    """A running `tsrun` with its address."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url
        self.client = openai.OpenAI(
            base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=3000
        )

    def ask(self, text: str, **options: object) -> str:
        answer = self.client.chat.completions.create(
            model="under-test",
            messages=[{"role": "user", "content": text}],
            temperature=0,
            max_tokens=24,
            extra_body=options,
        )
        return answer.choices[0].message.content or ""

    def metrics(self) -> dict[str, float]:
        """Values by name, less `tsrun:`; `name{free}` and so on where a label tells them apart."""
        text = httpx.get(f"{self.url}/metrics", timeout=60).raise_for_status().text
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                name = sample.name.removeprefix("tsrun:")
                told = [
                    sample.labels[k] for k in ("state", "finished_reason") if k in sample.labels
                ]
                found[f"{name}{{{told[0]}}}" if told else name] = sample.value
        return found

    def ranks(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()


@contextmanager
def serving(artifact: Path, errors: Path) -> Generator[Server]:
    """`tsrun` on a free port, its messages in the file `errors`; gone when the block ends."""
    with errors.open("w") as stderr:
        process = subprocess.Popen(
            [Path(sys.executable).parent / "tsrun", artifact, "--port", "0"],
            stderr=stderr,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        try:
            yield Server(process, _address(process, errors))
        finally:
            process.kill()
            process.wait()


def _address(process: subprocess.Popen[str], errors: Path) -> str:
    end = time.monotonic() + 240
    while time.monotonic() < end and process.poll() is None:
        if found := re.search(r"http://127\.0\.0\.1:\d+", errors.read_text()):
            return found[0]
        time.sleep(0.05)
    raise AssertionError(errors.read_text())
