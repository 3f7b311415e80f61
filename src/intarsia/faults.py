"""What is wrong with the data of a run: how compiled kernels report it, and what people are told."""

INDEX_OUT_OF_RANGE, DIVISION_BY_ZERO, SINGULAR_MATRIX, TOO_MANY_SAMPLES = range(1, 5)  # what a kernel writes to its status word

INDEX_IS_OUT_OF_RANGE = "an index is out of range; expected indices from -size to size - 1 along the indexed axis"
DIVISOR_IS_ZERO = (
    "an element of the integer divisor is 0; expected none: change it before the division (Where, Max), or divide floats"
)
MATRIX_IS_SINGULAR = "a matrix of X cannot be inverted: it is singular"
SAMPLES_ARE_TOO_MANY = (
    "a region is so large that its bins need more than 16384 samples along an axis: check rois and their scale"
)

MESSAGES = {
    INDEX_OUT_OF_RANGE: INDEX_IS_OUT_OF_RANGE, DIVISION_BY_ZERO: DIVISOR_IS_ZERO, SINGULAR_MATRIX: MATRIX_IS_SINGULAR,
    TOO_MANY_SAMPLES: SAMPLES_ARE_TOO_MANY,
}  # fmt: skip
