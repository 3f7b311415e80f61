"""What providers that hand a whole subgraph to a vendor's compiler have in common.

A vendor is a `Translator` (which nodes, and how a part is written for the vendor) and a `VendorExecutionProvider` on it (what
compiles and loads that on this machine). A part goes through

| step | module | what it does |
|---|---|---|
| survey | `survey` | node by node: yes, or no with the reason; what is not refused by a table is translated by itself |
| bind | `shape_profile` | sizes that vary get numbers: those of the run, or a profile's |
| half | `half_precision` | float32 to float16, strongly typed, but for the nodes of a keep-list |
| legalize | `legalize`, `legalization_rules` | operators that the vendor has not in terms of those that it has, by rules |
| translate | `Translator.translate` | the vendor's own form |
| compile | `VendorExecutionProvider.build` | the vendor's compiler; counted |
| keep | `artifact_cache` | what was compiled, by its content and all versions, bounded; each miss says why |
| run | `program` | an executable for any sizes, or one for each combination of input shapes |

Nothing here knows a vendor. OpenVINO's provider, which reads ONNX itself, shares `narrow_integers`.
"""
