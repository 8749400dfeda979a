/* NOTIFY-ACK on a fixed graph (ASAP, section on NOTIFY-ACK; daemon/core/policies/notify_ack.h): one
 * update slot an edge, which the sender may overwrite once the receiver has acknowledged its former
 * contents. Iterations are counted from a base that moves along with the slowest worker, so what is
 * checked holds however long a job runs.
 *
 * In an iteration k a worker begins, waits for the ACKs of k - 1 from everybody it sends to
 * (targets), writes its slots one by one, notifies (push), waits for all NOTIFYs of k (collect),
 * reads the slots one by one, and acknowledges (consumed). Writing and reading take time: others
 * move between the start and the end of each.
 *
 * Checked at every step: no deadlock; a reader finds iteration k in the slot and nobody writes to it
 * meanwhile; c_i - c_j <= min(|P(j->i)|, 2 |P(i->j)|) (Hop, table 1), for all pairs. With LIVE: each
 * worker has READ its slots and is IDLE infinitely often, and so, one by one, in every iteration.
 *
 * Mistakes, each of which one of these checks must notice:
 *   ACK_FIRST    acknowledges before the slots are read, as a known program does
 *   NO_ACK       never acknowledges
 *   NOTIFY_ONCE  notifies in its first iteration alone
 *   NO_TARGETS   does not wait for ACKs
 *   NO_COLLECT   does not wait for NOTIFYs
 *   SKIPS_READ   = i: worker i acknowledges without reading
 *   STALLS       = i: worker i may put off its ACKs for ever, busily, so that this is no deadlock
 *   CLOSER       = d: asks for a bound on c_i - c_(i+d) that is one less than table 1's
 * With BOUNDS_ONLY, nobody looks at the slots, so that the bounds must notice.
 */
#include "graphs.pml"

#define LOW 2
#define IDLE 0
#define BEGUN 1     /* waits for ACKs */
#define WRITING 2
#define NOTIFIED 3  /* waits for NOTIFYs */
#define READING 4
#define READ 5      /* is to acknowledge */

#ifndef NO_ACK
#define NO_ACK 0
#endif
#ifndef SKIPS_READ
#define SKIPS_READ N
#endif
#ifndef CLOSER
#define CLOSER N
#endif
#ifndef BOUNDS_ONLY
#define BOUNDS_ONLY 0
#endif

byte clock[N];
byte phase[N];
byte at[N];          /* the next neighbour whose slot is written or read */
bool busy[N];        /* in the middle of that one */
byte notified[N];    /* newest iteration that this worker has pushed */
byte acked[N * N];   /* [i * N + j]: newest iteration from i that j has acknowledged */
byte slot[N * N];    /* [i * N + j]: the iteration that lies there */
bool written[N * N]; /* somebody is writing to it */
bool read[N * N];    /* somebody is reading it */
#ifdef NOTIFY_ONCE
bool told[N];
#endif

hidden byte a; hidden byte b; hidden byte least;

inline check_bounds() {
  for (a : 0 .. N - 1) {
    for (b : 0 .. N - 1) {
      if
      :: a != b ->
        assert(clock[a] - clock[b] <= SMALLER(DISTANCE(b, a), 2 * DISTANCE(a, b)) -
                                       (AHEAD(a, b) == CLOSER -> 1 : 0))
      :: else
      fi
    }
  }
  a = 0; b = 0
}

inline rebase() {
  least = 255;
  for (a : 0 .. N - 1) { least = SMALLER(least, clock[a]) }
  if
  :: least > LOW ->
    for (a : 0 .. N - 1) {
      clock[a] = clock[a] + LOW - least;
      notified[a] = notified[a] + LOW - least;
      for (b : 0 .. N - 1) {
        if
        :: EDGE(a, b) ->
          acked[a * N + b] = acked[a * N + b] + LOW - least;
          slot[a * N + b] = slot[a * N + b] + LOW - least
        :: else
        fi
      }
    }
  :: else
  fi;
  a = 0; b = 0; least = 0
}

#ifdef NO_TARGETS
#define ACKED(i, j, k) true
#else
#define ACKED(i, j, k) (!EDGE(i, j) || acked[(i) * N + (j)] >= (k))
#endif
#ifdef NO_COLLECT
#define TOLD(i, j, k) true
#else
#define TOLD(i, j, k) (!EDGE(j, i) || notified[j] >= (k))
#endif
#if N == 2
#define ALL(f, i, k) (f(i, 0, k) && f(i, 1, k))
#elif N == 3
#define ALL(f, i, k) (f(i, 0, k) && f(i, 1, k) && f(i, 2, k))
#elif N == 4
#define ALL(f, i, k) (f(i, 0, k) && f(i, 1, k) && f(i, 2, k) && f(i, 3, k))
#endif

inline acknowledge(i) {
  for (a : 0 .. N - 1) {
    if
    :: EDGE(a, i) && !NO_ACK -> acked[a * N + i] = clock[i]
    :: else
    fi
  }
  a = 0
}

proctype worker(byte i) {
  do
  :: d_step { phase[i] == IDLE -> clock[i]++; phase[i] = BEGUN; check_bounds(); rebase() }
  :: d_step { phase[i] == BEGUN && ALL(ACKED, i, clock[i] - 1) -> phase[i] = WRITING; at[i] = 0 }
  :: d_step { phase[i] == WRITING && at[i] < N ->
      if
      :: !EDGE(i, at[i]) -> at[i]++
      :: EDGE(i, at[i]) && !busy[i] ->
        assert(BOUNDS_ONLY || !read[i * N + at[i]]);
        written[i * N + at[i]] = true; busy[i] = true
      :: EDGE(i, at[i]) && busy[i] ->
        slot[i * N + at[i]] = clock[i]; written[i * N + at[i]] = false; busy[i] = false; at[i]++
      fi }
  :: d_step { phase[i] == WRITING && at[i] == N ->
      at[i] = 0; phase[i] = NOTIFIED;
#ifdef NOTIFY_ONCE
      if
      :: !told[i] -> notified[i] = clock[i]; told[i] = true
      :: else
      fi }
#else
      notified[i] = clock[i] }
#endif
  :: d_step { phase[i] == NOTIFIED && ALL(TOLD, i, clock[i]) ->
#ifdef ACK_FIRST
      acknowledge(i);
#endif
      if
      :: i == SKIPS_READ -> acknowledge(i); phase[i] = IDLE
      :: else -> phase[i] = READING
      fi }
  :: d_step { phase[i] == READING && at[i] < N ->
      if
      :: !EDGE(at[i], i) -> at[i]++
      :: EDGE(at[i], i) && !busy[i] ->
        assert(BOUNDS_ONLY || (!written[at[i] * N + i] && slot[at[i] * N + i] == clock[i]));
        read[at[i] * N + i] = true; busy[i] = true
      :: EDGE(at[i], i) && busy[i] ->
        assert(BOUNDS_ONLY || slot[at[i] * N + i] == clock[i]);
        read[at[i] * N + i] = false; busy[i] = false; at[i]++
      fi }
  :: d_step { phase[i] == READING && at[i] == N -> at[i] = 0; phase[i] = READ }
  :: d_step { phase[i] == READ ->
#ifndef ACK_FIRST
      acknowledge(i);
#endif
      phase[i] = IDLE }
#ifdef STALLS
  :: d_step { i == STALLS && phase[i] == READ -> skip }
#endif
  od
}

init {
  d_step {
    for (a : 0 .. N - 1) {
      clock[a] = LOW;
      notified[a] = LOW;
      for (b : 0 .. N - 1) {
        if
        :: EDGE(a, b) -> acked[a * N + b] = LOW; slot[a * N + b] = LOW
        :: else
        fi
      }
    }
    a = 0; b = 0
  }
  atomic { for (a : 0 .. N - 1) { run worker(a) } a = 0 }
}

#ifdef LIVE
#define GOES_ON(i) ([]<> (phase[i] == READ) && []<> (phase[i] == IDLE))
#if N == 2
ltl goes_on { GOES_ON(0) && GOES_ON(1) }
#elif N == 3
ltl goes_on { GOES_ON(0) && GOES_ON(1) && GOES_ON(2) }
#elif N == 4
ltl goes_on { GOES_ON(0) && GOES_ON(1) && GOES_ON(2) && GOES_ON(3) }
#endif
#endif
