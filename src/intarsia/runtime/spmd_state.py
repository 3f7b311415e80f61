"""The words that a pool of the SPMD executor lives in; `spmd_text` reads and writes them in native code.

State of a pool: int64 words in lines of 16 (128 bytes: two cache lines, for the neighbour-line prefetcher).
"""

from intarsia.plan import call

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
ASLEEP = NATIVE_IDS + MAX_THREADS  # a word per worker: 0 awake, 1 asleep, 2 + the core that it was kept off when it was woken
SPREAD = 8  # pools of at most so many threads keep workers off the core of who wakes them
FLAGS = ASLEEP + MAX_THREADS  # a line per eight threads: the number of the phase in which each share was claimed last
COUNTS = FLAGS + 8  # in the same lines: how many shares of the eight were finished, in all phases

FUNCTIONS = ("run", "worker", "spin", "halt", "sliced", "signal words", "whole", "feed", "again")
OK, TERMINATED, WORKERS_MISSING, INTERRUPTED = range(4)  # what `run` returns

# Words of a call (`executor.CallBlock`) that are used by name: what the caller sets, then what native code keeps there.
CALL_FLAG, CALL_MODE = call.FLAG, call.MODE
CALL_STOPPED = 8  # not 0 once threads leave the table in the middle of a sliced step
CALL_SIGNALS = 9  # 1 in a run that answers signals
CALL_WATCHED = 10  # address of the word that is looked at between steps
CALL_WORDS = call.WORDS

# Words of the process: a signal came; the main thread; addresses of the functions that find and answer it; the exception of
# its handler (type, value, traceback); the numbers of the signals that are answered, 0 for none.
TRIPPED, MAIN, SELF, GETSIG, SETSIG, HANDLER, GIL_ENSURE, GIL_RELEASE, CHECK_SIGNALS, FETCH, RAISED = range(11)
SIGNALS = RAISED + 3
MOST_SIGNALS = 3
SIGNAL_WORDS = SIGNALS + MOST_SIGNALS
MOST_SLICED = call.MOST_SLICED
MOMENT = call.MOMENT

# Bytes from the start of Python's and NumPy's objects to what `spmd_feed` reads of them.
OBJECT_TYPE, ARRAY_DATA, ARRAY_ND, ARRAY_DIMS, ARRAY_DESCR, ARRAY_FLAGS = 8, 16, 24, 32, 56, 64

# Words of a call by a feed: whether it is under way; numbers of inputs and outputs; addresses of the pool and of the call's
# words, of words of status and how many there are, of the functions below, of two types and None, of room for the inputs, of
# the call's table and the one for a time when workers sleep (or 0), when the last run began, the address of the words of
# objects that hold an array (`holders.WORDS`), and how many nanoseconds the last run took; then a row for each input and each
# output: its name (of inputs), element type, rank, sizes, where its address goes. Of a call on the same memory again: in the
# place of rows what takes a lock, the arguments of that, what gives it back, and True.
FEED_BUSY, FEED_INPUTS, FEED_OUTPUTS, FEED_POOL, FEED_CALL, FEED_STATUS, FEED_CHECKED, FEED_API = range(8)
FEED_ARRAY_TYPE, FEED_DICT_TYPE, FEED_NONE, FEED_HELD, FEED_TABLE, FEED_ALONE, FEED_BEGUN, FEED_HOLDER = range(8, 16)
FEED_TOOK, FEED_ROWS = 16, 17
BRIEF = 10_000  # nanoseconds: a shorter run keeps the GIL, which threads that want it hand to each other in about that time
AGAIN_TAKE, AGAIN_ARGUMENTS, AGAIN_GIVE_BACK, AGAIN_TRUE, AGAIN_WORDS = range(FEED_ROWS, FEED_ROWS + 5)
HOLDER_TYPE, HOLDER_PLACE, HOLDER_WORDS = range(3)
ROW_NAME, ROW_DESCR, ROW_ND, ROW_DIMS, ROW_SLOT, ROW_WORDS = range(6)
API_GET_ITEM, API_SIZE, API_INCREF, API_DECREF, API_CLEAR, API_RELEASE_GIL, API_TAKE_GIL = range(7)
API_NEW_LIST, API_SET_ITEM, API_CALL, API_NEW_ARRAY, API_SET_BASE = range(7, 12)
