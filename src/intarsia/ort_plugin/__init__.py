"""IntarsiaCPU in onnxruntime: our CPU provider as a library that onnxruntime loads by its plugin interface.

    onnxruntime.register_execution_provider_library("IntarsiaCPU", intarsia.plugin_library())
    options.add_provider_for_devices([d for d in onnxruntime.get_ep_devices() if d.ep_name == "IntarsiaCPU"], {})

`library` writes the file and fills its table of functions; `factory` has what onnxruntime calls while it makes a session,
`graph_reader` reads its graphs, `selection` says which nodes are taken, `fused_part` runs one part, natively by
`compute_text` where its sizes are known.

Facts about the interface (names, order of entries, signatures) are those of onnxruntime's public headers.
"""
