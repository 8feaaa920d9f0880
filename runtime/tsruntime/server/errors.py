"""What the front end tells its users: API errors in OpenAI's shape, and failures of `tsrun`."""

from __future__ import annotations

import errno
from http import HTTPStatus

from tskernels.errors import TsError


class ApiError(Exception):
    """A request that is answered with an error, as OpenAI's API words it.

    `param` names the offending parameter (`messages[1].content`), `code` is the machine-readable
    reason where OpenAI has one.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = HTTPStatus.BAD_REQUEST,
        param: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = int(status)
        self.param = param
        self.code = code

    @property
    def kind(self) -> str:
        """OpenAI's `type`: whose fault it was."""
        return "invalid_request_error" if self.status < 500 else "server_error"

    def body(self) -> dict[str, object]:
        """The JSON object of the answer."""
        return {
            "error": {
                "message": self.message,
                "type": self.kind,
                "param": self.param,
                "code": self.code,
            }
        }


class CannotListen(TsError):
    """The address cannot be served on."""

    code = "TS0650"
    summary = "The host and port given to `tsrun` cannot be listened on."

    def __init__(self, host: str, port: int, error: OSError) -> None:
        busy = error.errno == errno.EADDRINUSE
        reason = "the port is in use" if busy else (error.strerror or str(error))
        super().__init__(
            f"cannot listen on {host}:{port}: {reason}",
            remedy="stop what listens there, or give another --port (0 takes any free one)"
            if busy
            else "give a --host that this machine has and a --port that you may open",
        )


class EngineFailed(TsError):
    """The engine ended while it was needed."""

    code = "TS0651"
    summary = "A rank of the engine failed or was killed, and the server ended with it."

    def __init__(self, message: str) -> None:
        super().__init__(
            message, remedy="start tsrun again; what the rank itself had to say stands above"
        )

    def __str__(self) -> str:
        """A rank's own catalogued error stands for itself."""
        own = self.message.find("error[TS")
        return super().__str__() if own < 0 else self.message[own:]


class PromptRefused(TsError):
    """A request from the command line that the engine cannot run."""

    code = "TS0652"
    summary = "The prompt or sampling options given to `tsrun` do not fit the artifact."

    def __init__(self, error: ApiError) -> None:
        remedy = "shorten the prompt, or correct the option"
        if error.param == "messages":
            remedy = "give --raw to continue the prompt as plain text"
        super().__init__(error.message, remedy=remedy)


class BenchTooLarge(TsError):
    """A benchmark that the artifact cannot hold."""

    code = "TS0653"
    summary = "The sizes given to `tsrun --bench` exceed the artifact's limits."

    def __init__(self, prompt_tokens: int, tokens: int, max_model_len: int) -> None:
        super().__init__(
            f"--prompt-tokens {prompt_tokens} and --tokens {tokens} make "
            f"{prompt_tokens + tokens}, beyond max_model_len {max_model_len}",
            remedy="lower --prompt-tokens or --tokens",
        )
