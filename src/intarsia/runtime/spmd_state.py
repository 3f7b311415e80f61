"""The words that a pool of the SPMD executor lives in; `spmd_text` reads and writes them in native code.

State of a pool: int64 words in lines of 16 (128 bytes: two cache lines, for the neighbour-line prefetcher).
"""

from intarsia.plan import executor_abi

LINE = 16
GENERATION = 0 * LINE  # the number of the phase; idle workers wait for it to change
IDLE_SLEEPERS, STOPPING = 1 * LINE, 1 * LINE + 1
PHASE_SLEEPERS = 2 * LINE  # thread 0, waiting for shares that others compute
GROUPS_DONE = 2 * LINE + 8  # of pools with more than eight threads: eights that have finished, in all phases
# Fixed while the pool runs: thread count, spin budgets, whether workers exist, and addresses of the system's functions.
THREADS, SPINS, PATIENCE, STARTED = range(3 * LINE, 3 * LINE + 4)
WAIT, WAKE, GETCPU, GET_AFFINITY, SET_AFFINITY, CLOCK, CLOCK_SCALE = range(3 * LINE + 4, 3 * LINE + 11)
FLUSHING = 3 * LINE + 11  # not 0: denormal numbers count as zero
YIELD = 3 * LINE + 12  # address of the system's function that lets another thread run on this core, or 0
DISPUTED = 3 * LINE + 13  # until when, in nanoseconds, workers make way: thread 0 has waited long for one; else 0
FIRST, END = 4 * LINE, 4 * LINE + 1  # addresses of a phase's first row and the one behind its last, written before GENERATION
LOCK = 5 * LINE  # 0 free, 1 held, 2 held and waited for
PARALLEL_RUNS, BUSY_RUNS, WAKE_CALLS = 6 * LINE, 6 * LINE + 1, 6 * LINE + 2
MAX_THREADS = 1024
CPUS = 7 * LINE  # a word per thread: 1 + the core it was seen on last, 0 if unknown
NATIVE_IDS = CPUS + MAX_THREADS  # a word per worker: the system's number of the thread
ASLEEP = NATIVE_IDS + MAX_THREADS  # a word per worker: 0 awake, 1 asleep, 2 + the core that it avoided when it was woken
SPREAD = 8  # pools of at most so many threads keep workers off the core of who wakes them
FLAGS = ASLEEP + MAX_THREADS  # a line per eight threads: the number of the phase in which each share was claimed last
COUNTS = FLAGS + 8  # in the same lines: how many shares of the eight were finished, in all phases

FUNCTIONS = ("run", "worker", "spin", "halt", "sliced", "signal words", "whole", "feed", "again", "dynamic", "empty")
OK, TERMINATED, WORKERS_MISSING, INTERRUPTED = range(4)  # what `run` returns

# Words of a call (`executor.CallBlock`) that are used by name: what the caller sets, then what native code notes there.
CALL_EXTERNALS, CALL_FLAG, CALL_MODE = executor_abi.EXTERNALS, executor_abi.FLAG, executor_abi.MODE
CALL_STOPPED = 8  # not 0 once threads leave the table in the middle of a sliced step
CALL_SIGNALS = 9  # 1 in a run that answers signals
CALL_WATCHED = 10  # address of the word that is looked at between steps
CALL_WORDS = executor_abi.WORDS

# Words of the process: a signal came; the main thread; addresses of the functions that find and answer it; the exception of
# its handler (type, value, traceback); the numbers of the signals that are answered, 0 for none; whether the process ends.
TRIPPED, MAIN, SELF, GETSIG, SETSIG, HANDLER, GIL_ENSURE, GIL_RELEASE, CHECK_SIGNALS, FETCH, RAISED = range(11)
SIGNALS = RAISED + 3
MOST_SIGNALS = 3
ENDING = SIGNALS + MOST_SIGNALS
SIGNAL_WORDS = ENDING + 1
MOST_SLICED = executor_abi.MOST_SLICED
MOMENT = executor_abi.MOMENT

# Bytes from the start of Python's and NumPy's objects to what `spmd_feed` reads of them.
OBJECT_TYPE, ARRAY_DATA, ARRAY_ND, ARRAY_DIMS, ARRAY_DESCR, ARRAY_FLAGS = 8, 16, 24, 32, 56, 64

# Words of a call by a feed: whether it is under way; numbers of inputs and outputs; addresses of the pool and of the call's
# words, of words of status and how many there are, of the functions below, of two types and None, of room for the inputs, of
# the call's table and the one for a time when workers sleep (or 0), when the last run began, the address of the words of
# objects that hold an array (`holders.WORDS`), how many nanoseconds the last run took, and the memory of large results; then a
# row for each input and each output: its name (of inputs), element type, rank, sizes, where its address goes, bytes (of
# outputs). Of a call on the same memory again: instead of rows what takes a lock, the arguments of that, what gives it
# back, and True. Of a call whose sizes are dynamic: what is called before and after a run, what the run returned, room for the
# addresses of inputs, whether the sizes that are noted are those of the last run and whether those of the feed at hand are the
# same, and the shapes of results, or 0 where nothing is called for the same sizes. Then, of sizes that are likely to come one
# after the other, the address of the next row (0: none) and of the last, where the sizes at hand are noted and how many
# numbers they are, and address and arguments of the function that settles a state; a row is the address of a binding, the
# shapes of its results, and its sizes. In the call's rows a number of the call's externals is instead of an address (-1:
# none); in that of bytes, of inputs whether they are the first whose sizes are noted at this place, of outputs an element's
# bytes; and in that of an output's name which of the results it is.
FEED_BUSY, FEED_INPUTS, FEED_OUTPUTS, FEED_POOL, FEED_CALL, FEED_STATUS, FEED_CHECKED, FEED_API = range(8)
FEED_ARRAY_TYPE, FEED_DICT_TYPE, FEED_NONE, FEED_HELD, FEED_TABLE, FEED_ALONE, FEED_BEGUN, FEED_HOLDER = range(8, 16)
FEED_TOOK, FEED_LEASES, FEED_ROWS = 16, 17, 18
BRIEF = 10_000  # nanoseconds: a shorter run keeps the GIL, which threads that want it hand to each other in about that time
AGAIN_TAKE, AGAIN_ARGUMENTS, AGAIN_GIVE_BACK, AGAIN_TRUE, AGAIN_WORDS = range(FEED_ROWS, FEED_ROWS + 5)
OPEN_BEGIN, OPEN_END, OPEN_STATUS, OPEN_ADDRESSES, OPEN_VALID, OPEN_SAME, OPEN_KINDS = range(FEED_ROWS, FEED_ROWS + 7)
OPEN_NEXT, OPEN_LAST, OPEN_SIZES, OPEN_COUNT, OPEN_SETTLE, OPEN_SETTLING, OPEN_ROWS = range(FEED_ROWS + 7, FEED_ROWS + 14)
SETTLING = 1  # as `plan.native.abi` has it, which a run of known sizes does not import
HOLDER_TYPE, HOLDER_PLACE, HOLDER_WORDS = range(3)
ROW_NAME, ROW_DESCR, ROW_ND, ROW_DIMS, ROW_SLOT, ROW_NBYTES, ROW_WORDS = range(7)
API_GET_ITEM, API_SIZE, API_INCREF, API_DECREF, API_CLEAR, API_RELEASE_GIL, API_TAKE_GIL = range(7)
API_NEW_LIST, API_SET_ITEM, API_CALL, API_TUPLE_ITEM, API_TUPLE_SIZE, API_AS_SIZE, API_FROM_SIZE = range(7, 14)
API_NEW_CAPSULE, API_MALLOC, API_FREE, API_NEW_ARRAY, API_SET_BASE = range(14, 19)

# Words of the memory of large results: bytes that are retained and at most, the number of the block that came back last, the
# functions above; then of each kind of block the one that came back last, and first. Words of a block, before its elements:
# what was allocated, its kind (-1: it is not retained), its memory, bytes that were written at most, its number when it came
# back, and the one that came back before and after it.
LEASE_RETAINED, LEASE_MOST, LEASE_NUMBER, LEASE_API, LEASE_LISTS = range(5)
LEAST_ROOM, MOST_ROOM = 18, 27  # as powers of two, the smallest block and the largest that is retained
MOST_ROOMY = 25  # up to this one blocks are powers of two, beyond there are eight sizes to each
LEASE_KINDS = MOST_ROOMY - LEAST_ROOM + 1 + 8 * (MOST_ROOM - MOST_ROOMY)
LEASE_WORDS = LEASE_LISTS + 2 * LEASE_KINDS
MOST_IDLE = 512  # blocks that come back while another is retained that nobody wants
IDLE_LOOK = 63  # the number of a block that comes back has none of these bits: then those that are idle are looked for
BLOCK_RAW, BLOCK_KIND, BLOCK_MEMORY, BLOCK_WRITTEN, BLOCK_NUMBER, BLOCK_OLDER, BLOCK_NEWER, BLOCK_WORDS = range(8)
MOST_AXES = 64
