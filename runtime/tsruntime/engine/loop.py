"""Rank 0's loop: commands from the pipe, steps, events back; and the other ranks' loop."""

from __future__ import annotations

from multiprocessing.connection import Connection

from tsruntime.engine.channel import Channel, Followers
from tsruntime.engine.engine import Engine
from tsruntime.engine.messages import Abort, AskStats, Command, Event, Fork, Shutdown, Submit
from tsruntime.executor.output import Runner

HEARTBEAT_SECONDS = 2.0
"""How often an idle rank 0 shows the others that it lives, and finds out whether they do."""


class Loop:
    """Serves one front end over `connection`: lists of commands come, lists of events go.

    The front end must read events while it sends: either side blocks when the pipe is full.
    """

    def __init__(
        self,
        engine: Engine,
        connection: Connection,
        followers: Followers,
        heartbeat: float = HEARTBEAT_SECONDS,
    ) -> None:
        self._engine = engine
        self._connection = connection
        self._followers = followers
        self._heartbeat = heartbeat
        self._draining = False
        self._ended = False

    def run(self) -> None:
        """Until a shutdown is done or the front end is gone; then the other ranks end too."""
        try:
            while not (self._ended or (self._draining and not self._engine.busy)):
                self._turn()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            pass  # the front end is gone: nobody waits for what is still live
        self._followers.stop()

    def _turn(self) -> None:
        events = self._receive()
        if self._engine.busy and not self._ended:
            events += self._engine.step()
        if events:
            self._connection.send(events)

    def _receive(self) -> list[Event]:
        """Apply every command that waits, waiting for one if there is nothing to run."""
        wait = 0.0 if self._engine.busy else self._heartbeat
        events: list[Event] = []
        if wait and not self._connection.poll(wait):
            self._followers.heartbeat()
        while self._connection.poll(0):
            commands: list[Command] = self._connection.recv()
            for command in commands:
                events += self._apply(command)
        return events

    def _apply(self, command: Command) -> list[Event]:
        match command:
            case Submit():
                return self._engine.submit(command)
            case Fork():
                return self._engine.fork(command)
            case Abort():
                return self._engine.abort(command.id)
            case AskStats():
                return [self._engine.report()]
            case Shutdown():
                self._draining = True
                self._ended = self._ended or not command.drain
        return []


def follow(executor: Runner, channel: Channel) -> None:
    """What ranks other than 0 do: run each batch that rank 0 sends, until it says stop."""
    while (batch := channel.receive()) is not None:
        executor.run(batch)
