"""The shape of every error that a person may read, and the catalogue's registry.

A message names the thing, both values, where it stands and a remedy. Codes are grouped by layer:
TS01xx recipe, TS02xx checkpoint, TS03xx placement and plan, TS04xx kernels, TS05xx artifact,
TS06xx runtime, TS07xx API.
"""

from __future__ import annotations

from typing import Any, ClassVar


class TsError(Exception):
    """An expected failure: printed as one line (plus remedy), never as a traceback.

    Subclasses set `code` (`TS0101`), unique in the whole project, and `summary`, one sentence for
    `docs/errors.md`. Instances carry the message, the remedy and, where there is one, the place
    (`recipe.yaml:12 parallel.attn_tp`, a file, a module).
    """

    code: ClassVar[str]
    summary: ClassVar[str]
    catalogue: ClassVar[dict[str, type[TsError]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        code = cls.__dict__.get("code")
        if code is None:
            return
        if code in TsError.catalogue:
            raise TypeError(f"error code {code} is taken by {TsError.catalogue[code].__name__}")
        TsError.catalogue[code] = cls

    def __init__(self, message: str, *, remedy: str, where: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.where = where

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self), self.args, self.__dict__)

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return f"error[{self.code}]: {place}{self.message}\n  fix: {self.remedy}"


def _unpickled(
    kind: type[TsError], arguments: tuple[Any, ...], attributes: dict[str, Any]
) -> TsError:
    """An error of another process, whatever its class's own constructor takes."""
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(attributes)
    return error
