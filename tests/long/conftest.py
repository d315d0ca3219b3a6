"""What tests of commands and of grades share, here too."""

from tests.check.conftest import all_the_time_it_takes
from tests.commands.conftest import built_once, here, quick_workers, server

__all__ = ["all_the_time_it_takes", "built_once", "here", "quick_workers", "server"]
