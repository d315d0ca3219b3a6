"""What tests of commands and of grades share, here too."""

from tests.commands.conftest import built_once, here, quick_workers, server

__all__ = ["built_once", "here", "quick_workers", "server"]
