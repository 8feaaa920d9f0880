"""What a rank is told, and how the cores are shared."""

from __future__ import annotations

import pytest

from tsruntime.workers.settings import RankSettings, threads_per_rank, usable_cores


@pytest.mark.parametrize("trusted", [(), ("ab" * 32, "cd" * 32)])
def test_settings_survive_the_command_line(trusted: tuple[str, ...]) -> None:
    settings = RankSettings("/a b/ü", 1, 3, 2, "/tmp/x", 5, -1, 12.25, trusted)
    assert RankSettings.from_argument(settings.to_argument()) == settings


@pytest.mark.parametrize(
    ("world", "cores", "given", "threads"),
    [
        (1, 8, None, 8),
        (3, 8, None, 2),
        (4, 2, None, 1),
        (3, 8, "5", 5),
        (2, 8, "", 4),
        (2, 8, "x", 4),
    ],
)
def test_cores_are_shared_unless_the_environment_says_otherwise(
    world: int, cores: int, given: str | None, threads: int
) -> None:
    environment = {} if given is None else {"OMP_NUM_THREADS": given}
    assert threads_per_rank(world, cores, environment) == threads


def test_this_machine_has_a_core() -> None:
    assert usable_cores() >= 1
