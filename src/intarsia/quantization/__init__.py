"""onnxruntime's subpackage of this name is left out: importing this says why."""

from intarsia.compat.not_provided import ModuleLeftOut, module_message

raise ModuleLeftOut(module_message("quantization"))
