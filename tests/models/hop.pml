/* Hop's token queues and update queues ("Hop: Heterogeneity-aware Decentralized Training", ASPLOS
 * 2019, sections 3 to 5), for all interleavings and without an end: iterations are counted from a
 * base that moves along with the slowest worker, so that the state space is finite and what is
 * checked holds however long a job runs.
 *
 * Checked at every step:
 *  - no deadlock (an invalid end state, which spin looks for by itself);
 *  - TokenQ(j->i) holds c_j - c_i + max_ig tokens, never less than none, and at most
 *    max_ig (|P(j->i)| + 1) of them (table 1);
 *  - c_i - c_j <= min(|P(j->i)|, max_ig |P(i->j)|), the first term without backup only (table 1);
 *  - whatever a collect takes was sent over that edge, and is never overwritten before the receiver
 *    begins its next iteration, with max_ig + 1 slots an edge (max_ig + 2 with skip);
 * and with LIVE defined (as an LTL formula under weak fairness), that every worker goes on for ever.
 *
 * Parameters: N and a graph (graphs.pml), MAX_IG, BACKUP (in-neighbours whose update a collect may
 * lack), SKIP (iterations that a jump has at most; 0: never) and TRIGGER, SLOTS. PAPER_SKIP models
 * a jump as the paper's text has it, which waits for the updates of the iteration before its target
 * and deadlocks; the daemon jumps only where it can collect at once (daemon/core/policies/hop.h).
 */
#include "graphs.pml"

#ifndef BACKUP
#define BACKUP 0
#endif
#ifndef SKIP
#define SKIP 0
#endif
#ifndef TRIGGER
#define TRIGGER MAX_IG
#endif
#ifndef SLOTS
#define SLOTS (MAX_IG + (SKIP > 0 -> 2 : 1))
#endif

#define LOW 2        /* where the slowest worker's clock stands: room for the iteration before it */
#define COLLECTED 0  /* may begin its next iteration */
#define BEGUN 1      /* is to send */
#define SENT 2       /* is to collect */
#define JUMPING 3    /* PAPER_SKIP: has decided on a jump and waits for its updates */

byte clock[N];       /* iteration that the worker is in, relative to the base */
byte last_sent[N];   /* the newest that it sent */
byte phase[N];
bool jumped[N];      /* its parameters come from the set of the iteration before */
byte tokens[N * N];  /* [j * N + i]: TokenQ(j->i), for the edge i -> j */
int sent[N * N];     /* [i * N + j]: bit k: iteration k was sent from i to j */
#ifdef PAPER_SKIP
byte target[N];
#endif

/* The oldest iteration of which worker j may still read updates. */
#define OLDEST_READ(j) (clock[j] - (jumped[j] -> 1 : 0))

/* hidden: scratch memory that is not part of the state. */
hidden byte a; hidden byte b; hidden byte missing; hidden byte least; hidden byte to;

inline check_bounds() {
  for (a : 0 .. N - 1) {
    for (b : 0 .. N - 1) {
      if
      :: EDGE(a, b) ->
        assert(tokens[b * N + a] == clock[b] + MAX_IG - clock[a]);
        assert(tokens[b * N + a] <= MAX_IG * (DISTANCE(b, a) + 1))
      :: else
      fi;
      if
      :: a != b ->
        assert(clock[a] - clock[b] <= MAX_IG * DISTANCE(a, b));
        assert(BACKUP > 0 || clock[a] - clock[b] <= DISTANCE(b, a))
      :: else
      fi
    }
  }
  a = 0; b = 0
}

/* Forgets what was sent of iterations that the receiver will never read any more, and moves the base
 * along: states that differ in nothing else are one. */
inline rebase() {
  for (a : 0 .. N - 1) {
    for (b : 0 .. N - 1) {
      sent[a * N + b] = (sent[a * N + b] >> OLDEST_READ(b)) << OLDEST_READ(b)
    }
  }
  least = 255;
  for (a : 0 .. N - 1) { least = SMALLER(least, clock[a]) }
  if
  :: least > LOW ->
    least = least - LOW;
    for (a : 0 .. N - 1) {
      clock[a] = clock[a] - least;
      last_sent[a] = (last_sent[a] > least -> last_sent[a] - least : 0);
#ifdef PAPER_SKIP
      target[a] = (target[a] > least -> target[a] - least : 0);
#endif
      for (b : 0 .. N - 1) { sent[a * N + b] = sent[a * N + b] >> least }
    }
  :: else
  fi;
  a = 0; b = 0; least = 0
}

/* Takes the tokens for `steps` iterations, puts as many into the own queues, and enters. */
inline enter(i, steps) {
  for (a : 0 .. N - 1) {
    if
    :: EDGE(i, a) -> assert(tokens[a * N + i] >= steps); tokens[a * N + i] = tokens[a * N + i] - steps
    :: else
    fi;
    if
    :: EDGE(a, i) -> tokens[i * N + a] = tokens[i * N + a] + steps
    :: else
    fi
  }
  clock[i] = clock[i] + steps;
  phase[i] = BEGUN;
  check_bounds();
  rebase()
}

/* How many in-neighbours have not sent iteration k yet. */
inline count_missing(i, k) {
  missing = 0;
  for (a : 0 .. N - 1) {
    if
    :: EDGE(a, i) && last_sent[a] < (k) -> missing++
    :: else
    fi
  }
  a = 0
}

/* What is there of iteration k was really sent to i: nobody jumped over it. */
inline take(i, k) {
  for (a : 0 .. N - 1) {
    if
    :: EDGE(a, i) && last_sent[a] >= (k) -> assert((sent[a * N + i] >> (k)) & 1)
    :: else
    fi
  }
  a = 0
}

/* To whom still has a use for it; then everybody knows that it is there. */
inline send(i) {
  for (a : 0 .. N - 1) {
    if
    :: EDGE(i, a) && (BACKUP == 0 || clock[a] <= clock[i]) ->
      /* The slot's former iteration, of which no reader may be left. */
      assert(!(clock[i] >= SLOTS && ((sent[i * N + a] >> (clock[i] - SLOTS)) & 1)) ||
             clock[i] - SLOTS < OLDEST_READ(a));
      sent[i * N + a] = sent[i * N + a] | (1 << clock[i])
    :: else
    fi
  }
  a = 0;
  last_sent[i] = clock[i];
  phase[i] = SENT
}

/* to = where the worker would jump, or 0. */
inline find_jump(i) {
  to = 0;
  least = 255;
  for (a : 0 .. N - 1) {
    if
    :: EDGE(i, a) -> least = SMALLER(least, clock[a])
    :: else
    fi
  }
  if
  :: SKIP > 0 && least >= clock[i] + TRIGGER && SMALLER(least - clock[i], SKIP) > 1 ->
    to = clock[i] + SMALLER(least - clock[i], SKIP);
    count_missing(i, to - 1);
#ifndef PAPER_SKIP
    if
    :: missing > BACKUP -> to = 0
    :: else
    fi
#endif
  :: else
  fi;
  a = 0; least = 0
}

/* Of worker i: whether its begin, its collect can be answered, as guards. An expression over all
 * neighbours, for numbers of workers that are asked for. */
#define TOKEN(i, j) (!EDGE(i, j) || tokens[(j) * N + (i)] > 0)
#define LATE(i, j, k) (EDGE(j, i) && last_sent[j] < (k) -> 1 : 0)
#if N == 2
#define ALL(f, i) (f(i, 0) && f(i, 1))
#define SUM(f, i, k) (f(i, 0, k) + f(i, 1, k))
#elif N == 3
#define ALL(f, i) (f(i, 0) && f(i, 1) && f(i, 2))
#define SUM(f, i, k) (f(i, 0, k) + f(i, 1, k) + f(i, 2, k))
#elif N == 4
#define ALL(f, i) (f(i, 0) && f(i, 1) && f(i, 2) && f(i, 3))
#define SUM(f, i, k) (f(i, 0, k) + f(i, 1, k) + f(i, 2, k) + f(i, 3, k))
#elif N == 5
#define ALL(f, i) (f(i, 0) && f(i, 1) && f(i, 2) && f(i, 3) && f(i, 4))
#define SUM(f, i, k) (f(i, 0, k) + f(i, 1, k) + f(i, 2, k) + f(i, 3, k) + f(i, 4, k))
#elif N == 7
#define ALL(f, i) (f(i, 0) && f(i, 1) && f(i, 2) && f(i, 3) && f(i, 4) && f(i, 5) && f(i, 6))
#define SUM(f, i, k) \
  (f(i, 0, k) + f(i, 1, k) + f(i, 2, k) + f(i, 3, k) + f(i, 4, k) + f(i, 5, k) + f(i, 6, k))
#endif

proctype worker(byte i) {
  do
  /* begin: a jump where there is one, else the next iteration. Where a jump is asked for, the
   * out-neighbours are ahead and there are tokens, so this guard is enough for both. */
  :: d_step { phase[i] == COLLECTED && ALL(TOKEN, i) ->
      jumped[i] = false;
      find_jump(i);
      if
      :: to == 0 -> enter(i, 1)
#ifdef PAPER_SKIP
      :: to > 0 -> phase[i] = JUMPING; target[i] = to
#else
      :: to > 0 -> jumped[i] = true; take(i, to - 1); to = to - clock[i]; enter(i, to)
#endif
      fi;
      to = 0; missing = 0 }
#ifdef PAPER_SKIP
  :: d_step { phase[i] == JUMPING && SUM(LATE, i, target[i] - 1) <= BACKUP ->
      jumped[i] = true; take(i, target[i] - 1); to = target[i] - clock[i]; target[i] = 0;
      enter(i, to); to = 0; missing = 0 }
#endif
  :: d_step { phase[i] == BEGUN -> send(i) }
  :: d_step { phase[i] == SENT && SUM(LATE, i, clock[i]) <= BACKUP ->
      take(i, clock[i]); phase[i] = COLLECTED }
  od
}

init {
  d_step {
    for (a : 0 .. N - 1) {
      clock[a] = LOW;
      last_sent[a] = LOW;
      for (b : 0 .. N - 1) {
        if
        :: EDGE(a, b) -> tokens[b * N + a] = MAX_IG
        :: else
        fi
      }
    }
    a = 0; b = 0
  }
  atomic { for (a : 0 .. N - 1) { run worker(a) } a = 0 }
}

#ifdef LIVE
#define GOES_ON(i) ([]<> (phase[i] == BEGUN))
#if N == 2
ltl goes_on { GOES_ON(0) && GOES_ON(1) }
#elif N == 3
ltl goes_on { GOES_ON(0) && GOES_ON(1) && GOES_ON(2) }
#elif N == 4
ltl goes_on { GOES_ON(0) && GOES_ON(1) && GOES_ON(2) && GOES_ON(3) }
#elif N == 5
ltl goes_on { GOES_ON(0) && GOES_ON(1) && GOES_ON(2) && GOES_ON(3) && GOES_ON(4) }
#endif
#endif
