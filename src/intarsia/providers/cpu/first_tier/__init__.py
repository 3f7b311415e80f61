"""Programs that need no compiler: nodes run one after the other, by kernels that were made before any model was there.

The kernels (`kernel_set`) take all sizes as arguments, so that some fifty of them serve every model; `intarsia cache warm`
makes them. What none of them computes, the reference's definitions do.
"""
