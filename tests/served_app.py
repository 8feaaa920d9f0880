"""The real application under the real uvicorn, on a free loopback port, in a thread."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import uvicorn
from fake_engine import FakeEngine

from tsruntime.server.app import build_app
from tsruntime.server.frontend import Frontend
from tsruntime.server.intake import Intake
from tsruntime.server.listen import bind, listen
from tsruntime.server.loading import load_intake, ready_frontend


class ServedApp:
    """A server over a fake engine; ends both at the end of the context."""

    def __init__(self, artifact: Path, engine: FakeEngine) -> None:
        self.engine = engine
        self.intake: Intake = load_intake(artifact, None)
        self.frontend: Frontend
        self.draining = False
        self._sock = bind("127.0.0.1", 0)
        self.url = listen(self._sock, "127.0.0.1")
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="served")

    async def _serve(self) -> None:
        async with ready_frontend(self.engine, self.intake) as self.frontend:
            app = build_app(self.frontend, self.intake, lambda: self.draining)
            config = uvicorn.Config(app, log_config=None, lifespan="off", ws="none")
            self._server = uvicorn.Server(config)
            self._started.set()
            await self._server.serve(sockets=[self._sock])

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(10)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=10)
        assert not self._thread.is_alive()
        self.engine.stop(0)
