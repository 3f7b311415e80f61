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
FLAGS = CPUS + MAX_THREADS  # a line per eight threads: the number of the phase in which each share was claimed last
COUNTS = FLAGS + 8  # in the same lines: how many shares of the eight were finished, in all phases

FUNCTIONS = ("run", "worker", "spin", "halt", "sliced", "signal words", "whole")
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
