"""What scripts for onnxruntime's OpenVINO package call on Windows before they import it."""


def add_openvino_libs_to_path() -> None:
    """Nothing to do: `OpenVINOExecutionProvider` imports the package openvino, which finds its own libraries."""
