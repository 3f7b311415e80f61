"""How many threads a run may use."""

from intarsia.codegen.cores import available_cores, cpu_quota

__all__ = ["available_cores", "cpu_quota"]
