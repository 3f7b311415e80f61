"""Name and version of the package, as onnxruntime's module of this name has them."""

from intarsia.session.process_settings import cuda_version, package_name, version

__version__ = version
__all__ = ["__version__", "cuda_version", "package_name"]
