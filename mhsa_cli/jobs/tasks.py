"""What a model can be trained on, with drawn rows."""

from mhsa_cli.core.tasks.show import examples

__all__ = ["examples"]
