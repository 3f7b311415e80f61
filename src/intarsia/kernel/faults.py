"""What is wrong with the data of a run: how compiled kernels report it, and what people are told."""

INDEX_OUT_OF_RANGE, DIVISION_BY_ZERO, SINGULAR_MATRIX = 1, 2, 3  # what a kernel writes to its status word

INDEX_IS_OUT_OF_RANGE = "an index is out of range; expected indices from -size to size - 1 along the indexed axis"
DIVISOR_IS_ZERO = (
    "an element of the integer divisor is 0; expected none: change it before the division (Where, Max), or divide floats"
)
MATRIX_IS_SINGULAR = "a matrix of X cannot be inverted: it is singular"
