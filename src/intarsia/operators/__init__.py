"""`intarsia.custom_ops` under the name that it had before version 0.2; goes with version 0.3."""

from intarsia.custom_ops import *  # noqa: F403
