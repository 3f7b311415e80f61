"""The words that a pool of the SPMD executor lives in; `spmd_text` reads and writes them in native code.

State of a pool: int64 words in lines of 16 (128 bytes: two cache lines, for the neighbour-line prefetcher).
"""

LINE = 16
GENERATION = 0 * LINE  # counts parallel runs; idle workers wait for it to change
IDLE_SLEEPERS, STOPPING = 1 * LINE, 1 * LINE + 1
BARRIER_SLEEPERS = 2 * LINE
# Fixed while the pool runs: thread count, spin budgets, whether workers exist, and addresses of the system's functions.
THREADS, SPINS, PATIENCE, STARTED, WAIT, WAKE, GETCPU, CLOCK, CLOCK_SCALE = range(3 * LINE, 3 * LINE + 9)
# One parallel run, written by thread 0 before it changes GENERATION.
TABLE, FIRST, END, EPOCH = range(4 * LINE, 4 * LINE + 4)
STOP_EPOCH = 5 * LINE  # the barrier at which all threads leave because the run was terminated
LOCK = 6 * LINE  # 0 free, 1 held, 2 held and waited for
PARALLEL_RUNS, BUSY_RUNS, WAKE_CALLS = 7 * LINE, 7 * LINE + 1, 7 * LINE + 2
MAX_THREADS = 1024
CPUS = 8 * LINE  # a word per thread: 1 + the core it was seen on last, 0 if unknown
FLAGS = CPUS + MAX_THREADS  # a line per thread: a word per barrier round; or the count of arrivals in the first word

FUNCTIONS = ("run", "worker", "spin", "halt")
WORKERS_MISSING = 2
COUNTED_THREADS = 4
