"""Runs the HTTP server until a signal or the engine ends it."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import uvicorn

from tsruntime.server.app import build_app
from tsruntime.server.errors import EngineFailed
from tsruntime.server.frontend import Engine, Frontend
from tsruntime.server.intake import Intake
from tsruntime.server.listen import listen
from tsruntime.server.loading import ready_frontend

_FAILURE_SECONDS: Final = 2.0
"""How long answers that the engine's failure cut off may take to tell their clients so."""

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class _Uvicorn(uvicorn.Server):
    """uvicorn without its signal handlers, which would end the process by the signal again."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave the signals to `serve`."""
        yield


class _Interrupts:
    """SIGINT and SIGTERM within the event loop: the first asks to end, the second insists."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.first: asyncio.Future[signal.Signals] = self._loop.create_future()
        self.second: asyncio.Future[signal.Signals] = self._loop.create_future()

    def __enter__(self) -> _Interrupts:
        for number in _SIGNALS:
            self._loop.add_signal_handler(number, self._take, number)
        return self

    def __exit__(self, *_: object) -> None:
        for number in _SIGNALS:
            self._loop.remove_signal_handler(number)

    def _take(self, number: signal.Signals) -> None:
        for waiting in (self.first, self.second):
            if not waiting.done():
                waiting.set_result(number)
                return


@dataclass(slots=True)
class _Service:
    """One server; `uvicorn` is there once it listens."""

    engine: Engine
    intake: Intake
    sock: socket.socket
    host: str
    uvicorn: _Uvicorn | None = None

    async def run(self) -> None:
        """Load, listen and serve until `drain` is done. Raises EngineFailed and CannotListen."""
        async with ready_frontend(self.engine, self.intake) as frontend:
            url = listen(self.sock, self.host)
            config = uvicorn.Config(
                build_app(frontend, self.intake, self._draining),
                log_config=None,
                access_log=False,
                lifespan="off",
                ws="none",
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=75,
            )
            self.uvicorn = _Uvicorn(config)
            print(f"tsrun: serving {self.intake.name} on {url}", file=sys.stderr, flush=True)
            await self._serve_until_failure(self.uvicorn, frontend)

    def drain(self) -> bool:
        """Accept no more and answer what is in flight; False if there is nothing to wait for."""
        if self.uvicorn is None:
            return False
        self.uvicorn.should_exit = True
        return True

    def _draining(self) -> bool:
        return self.uvicorn is not None and self.uvicorn.should_exit

    async def _serve_until_failure(self, server: _Uvicorn, frontend: Frontend) -> None:
        serving = asyncio.create_task(server.serve(sockets=[self.sock]))
        failing = asyncio.create_task(frontend.failed())
        try:
            await asyncio.wait({serving, failing}, return_when=asyncio.FIRST_COMPLETED)
            if failing.done():
                server.should_exit = True
                await asyncio.wait({serving}, timeout=_FAILURE_SECONDS)
                raise EngineFailed(failing.result())
            serving.result()
        finally:
            serving.cancel()
            failing.cancel()
            await asyncio.gather(serving, failing, return_exceptions=True)


def serve(engine: Engine, intake: Intake, sock: socket.socket, host: str) -> int:
    """Load, listen, serve and drain; gives the exit code.

    0 after SIGINT or SIGTERM, once the requests in flight are answered; 128 + the signal's number
    where a second one cuts them off. Raises EngineFailed if a rank ends meanwhile, and
    CannotListen.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="tsrun: %(message)s")
    return asyncio.run(_serve(_Service(engine, intake, sock, host)))


async def _serve(service: _Service) -> int:
    with _Interrupts() as interrupts:
        running = asyncio.create_task(service.run())
        try:
            await _either(running, interrupts.first)
            if not running.done() and service.drain():
                await _either(running, interrupts.second)
                if not running.done():
                    logging.disable()  # or uvicorn tells of each answer that is cut off
                    return 128 + interrupts.second.result()
            return _code(running)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def _either(running: asyncio.Task[None], signalled: asyncio.Future[signal.Signals]) -> None:
    await asyncio.wait({running, signalled}, return_when=asyncio.FIRST_COMPLETED)


def _code(running: asyncio.Task[None]) -> int:
    if running.done():
        running.result()
    return 0
