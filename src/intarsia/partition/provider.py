"""`intarsia.ep.provider` under the name that it had before version 0.2; goes with version 0.3."""

from intarsia.ep.provider import *  # noqa: F403
