/* A shard's log in etcd: members that lead in turn append batches to it by fenced transactions, follow
 * it with copies of their own, and remove what a snapshot covers. All interleavings of:
 *  - a key that expires while its member believes that it leads (a suspension is a long one);
 *  - a create whose answer is lost: the key is there, and no member leads;
 *  - an attempt that is lost, whose answer is lost or late, or that lands long after the next one;
 *  - a member that crashes, and comes back with its copy or with an empty disk;
 *  - a copy that lags, also behind what was removed;
 *  - a removal that lands late or twice.
 *
 * Checked:
 *  - a new leader recovers exactly what was committed, and everything that was acknowledged;
 *  - what is acknowledged is committed;
 *  - no record is committed twice, though clients repeat to the next leader what was not acknowledged;
 *  - terms rise along the log, entries follow each other, the entries from `first` to `tail` are there;
 *  - a copy of a cluster that was not set back lies on the log's chain.
 *
 * Not modelled: who may grant, which rests on clocks; parts of large batches and of snapshots.
 *
 * Parameters: TERMS, INDEXES (at most 7): how many there are at most; there are two records.
 * An assertion must find each of these mistakes:
 *  NO_TAIL      the log's last entry says where it ends
 *  ENTRY_ONLY   a transaction compares that its entry is not there, in place of the tail
 *  NO_NONCE     the tail has an index only
 *  GROWS        a batch takes more records along when it is sent again
 *  FIRST_ONLY   a removal is fenced, but does not compare `first`
 * REACHES fails where a leader with an empty disk rebuilds acknowledged records from a pointer.
 */
#ifndef TERMS
#define TERMS 3
#endif
#ifndef INDEXES
#define INDEXES 2
#endif
#define ATTEMPTS 2   /* transactions that are under way at once */

/* A nonce is unique, names its batch, and is 0 before the first. */
#define NONCE(term, index) ((term) * 8 + (index))
#define TERM(nonce) ((nonce) / 8)
#define INDEX(nonce) ((nonce) % 8)

/* etcd. Sets of records are bits. */
byte key;                    /* the leader key's create revision; 0: there is none */
byte terms;                  /* create revisions so far */
byte first = 1;
byte tail;                   /* nonce of the last entry */
byte entry[INDEXES + 1];     /* nonces; 0: not there */
byte records[INDEXES + 1];
byte pointer;                /* what the snapshot holds, and the entry up to which */
byte pointer_nonce;

/* Transactions under way. */
byte a_term[ATTEMPTS];       /* 0: a free place */
byte a_index[ATTEMPTS];      /* 0: a removal */
byte a_old[ATTEMPTS];        /* compared: the tail's nonce, or `first` */
byte a_new[ATTEMPTS];        /* the records, or the new `first` */
byte a_pointer[ATTEMPTS];    /* a snapshot that goes with it; 0: none */
byte a_wanted[ATTEMPTS];     /* member + 1 that waits for the answer; 0: none does any more */

#define FOLLOWS 0
#define CREATED 1
#define LEADS 2
#define NOTHING 0
#define COMMITTED 1
#define DEPOSED 2

/* Members. */
byte role[2];
byte term[2];
byte waiting[2];             /* records that came while a batch was under way */
byte batch[2];               /* 0: none is */
bool pointed[2];             /* the batch has a snapshot pointer */
byte answer[2];
byte copy[2];
byte copy_nonce[2];

/* What the checks know. */
byte committed;
byte acknowledged;

hidden byte i; hidden byte end;

#ifdef NO_TAIL
inline find_end() {
  end = 0;
  for (i : 1 .. INDEXES) {
    if
    :: entry[i] != 0 -> end = i
    :: else
    fi
  }
  i = 0
}
#else
inline find_end() { end = INDEX(tail) }
#endif

/* Brings member m's copy up to the end of the log as it is now. */
inline catch_up(m) {
  find_end();
#ifdef NO_TAIL
  if
  :: copy_nonce[m] == 0 -> copy[m] = pointer
  :: else
  fi;
#else
  if
  :: INDEX(copy_nonce[m]) + 1 < first ->
#ifdef REACHES
    assert(acknowledged == 0);
#endif
    copy[m] = pointer; copy_nonce[m] = pointer_nonce
  :: else
  fi;
  assert(INDEX(copy_nonce[m]) <= end);
  assert(INDEX(copy_nonce[m]) < first || entry[INDEX(copy_nonce[m])] == copy_nonce[m]);
#endif
  for (i : 1 .. INDEXES) {
    if
#ifdef NO_TAIL
    :: i > INDEX(copy_nonce[m]) && entry[i] != 0 ->
#else
    :: i == INDEX(copy_nonce[m]) + 1 && i <= end ->
      assert(entry[i] != 0);
#endif
      copy[m] = copy[m] | records[i];
      copy_nonce[m] = entry[i]
    :: else
    fi
  }
#ifndef NO_TAIL
  assert(copy_nonce[m] == tail);
#endif
  i = 0; end = 0
}

/* Member m no longer waits for its attempt. */
inline abandon(m) {
  for (i : 0 .. ATTEMPTS - 1) {
    if
    :: a_wanted[i] == m + 1 -> a_wanted[i] = 0
    :: else
    fi
  }
  i = 0;
  answer[m] = NOTHING
}

/* The first place is filled before the second: states that differ in nothing else are one. */
inline clear(s) {
  if
  :: s == 0 ->
    a_term[0] = a_term[1]; a_index[0] = a_index[1]; a_old[0] = a_old[1];
    a_new[0] = a_new[1]; a_pointer[0] = a_pointer[1]; a_wanted[0] = a_wanted[1]
  :: else
  fi;
  a_term[1] = 0; a_index[1] = 0; a_old[1] = 0; a_new[1] = 0; a_pointer[1] = 0; a_wanted[1] = 0
}

#define BEHIND(m) (INDEX(copy_nonce[m]) + 1)

/* There is room for another, and where. */
#define HAS_ROOM (a_term[1] == 0)
#define PLACE (a_term[0] == 0 -> 0 : 1)

inline send(m) {
  i = PLACE;
  a_term[i] = term[m]; a_index[i] = BEHIND(m); a_old[i] = copy_nonce[m];
  a_new[i] = batch[m]; a_pointer[i] = (pointed[m] -> copy[m] | batch[m] : 0);
  a_wanted[i] = m + 1; i = 0
}

inline step_down(m) {
  role[m] = FOLLOWS; term[m] = 0; waiting[m] = 0; batch[m] = 0; pointed[m] = 0
}

#define KNOWN(m) (copy[m] | batch[m] | waiting[m])
#define CAN_SEND(m) (role[m] == LEADS && batch[m] == 0 && BEHIND(m) <= INDEXES && HAS_ROOM)

#if defined(NO_TAIL) || defined(ENTRY_ONLY)
#define APPENDS(s) (entry[a_index[s]] == 0)
#elif defined(NO_NONCE)
#define APPENDS(s) (INDEX(a_old[s]) == INDEX(tail))
#else
#define APPENDS(s) (a_old[s] == tail)
#endif
#if defined(NO_TAIL)
#define IS_MINE(s) (entry[a_index[s]] == NONCE(a_term[s], a_index[s]))
#elif defined(NO_NONCE)
#define IS_MINE(s) (INDEX(tail) == a_index[s])
#else
#define IS_MINE(s) (tail == NONCE(a_term[s], a_index[s]))
#endif
#ifdef FIRST_ONLY
#define REMOVES(s) 1
#else
#define REMOVES(s) (a_old[s] == first)
#endif

/* etcd takes a transaction, at a moment of its own. */
inline land(s) {
  if
  :: a_index[s] == 0 ->
    if
    :: a_term[s] == key && REMOVES(s) ->
      first = a_new[s];
      for (i : 1 .. INDEXES) {
        if
        :: i < first -> entry[i] = 0; records[i] = 0
        :: else
        fi
      }
      i = 0
    :: else
    fi
  :: else ->
    if
    :: a_term[s] == key && APPENDS(s) ->
      assert(a_term[s] >= TERM(tail));
#ifndef NO_TAIL
      assert((committed & a_new[s]) == 0);
      assert(a_index[s] == INDEX(tail) + 1);
#endif
      committed = committed | a_new[s];
      tail = NONCE(a_term[s], a_index[s]);
      entry[a_index[s]] = tail;
      records[a_index[s]] = a_new[s];
      if
      :: a_pointer[s] != 0 -> pointer = a_pointer[s]; pointer_nonce = tail
      :: else
      fi;
      end = COMMITTED
    :: else ->
      end = (IS_MINE(s) -> COMMITTED : DEPOSED)
    fi;
    if
    :: a_wanted[s] != 0 -> answer[a_wanted[s] - 1] = end
    :: else
    fi;
    end = 0
  fi;
  clear(s)
}

proctype member(byte m) {
end_member:
  do
  /* Takes a free key; knows it, or the answer is lost. (Who is the first makes no difference.) */
  :: d_step { role[m] == FOLLOWS && key == 0 && terms < TERMS && (terms > 0 || m == 0) ->
      terms++; key = terms; role[m] = CREATED; term[m] = terms }
  :: d_step { role[m] == FOLLOWS && key == 0 && terms < TERMS && terms > 0 -> terms++; key = terms }
  /* Reads at one revision, at or after that of its key. */
  :: d_step { role[m] == CREATED ->
      catch_up(m);
      assert(copy[m] == committed && (acknowledged & ~copy[m]) == 0);
      role[m] = LEADS }
  /* Clients' records, which may be some that another leader took and did not acknowledge: in a batch
   * with a pointer or without; or they wait for the next. */
  :: d_step { CAN_SEND(m) && (KNOWN(m) & 1) == 0 -> batch[m] = 1; send(m) }
  :: d_step { CAN_SEND(m) && (KNOWN(m) & 1) == 0 -> batch[m] = 1; pointed[m] = 1; send(m) }
  :: d_step { CAN_SEND(m) && (KNOWN(m) & 2) == 0 -> batch[m] = 2; send(m) }
  :: d_step { CAN_SEND(m) && (KNOWN(m) & 2) == 0 -> batch[m] = 2; pointed[m] = 1; send(m) }
  :: d_step { CAN_SEND(m) && waiting[m] != 0 -> batch[m] = waiting[m]; waiting[m] = 0; send(m) }
  :: d_step { CAN_SEND(m) && waiting[m] != 0 ->
      batch[m] = waiting[m]; waiting[m] = 0; pointed[m] = 1; send(m) }
  :: d_step { batch[m] != 0 && (KNOWN(m) & 1) == 0 -> waiting[m] = waiting[m] | 1 }
  :: d_step { batch[m] != 0 && (KNOWN(m) & 2) == 0 -> waiting[m] = waiting[m] | 2 }
  /* A time-out or an error says nothing, and neither does an answer that is lost. */
  :: d_step { batch[m] != 0 && HAS_ROOM ->
      abandon(m);
#ifdef GROWS
      batch[m] = batch[m] | waiting[m]; waiting[m] = 0;
#endif
      send(m) }
  :: d_step { batch[m] != 0 && answer[m] == COMMITTED ->
      assert((batch[m] & ~committed) == 0);
      acknowledged = acknowledged | batch[m];
      copy[m] = copy[m] | batch[m];
      copy_nonce[m] = NONCE(term[m], BEHIND(m));
      batch[m] = 0; pointed[m] = 0; answer[m] = NOTHING }
  :: d_step { batch[m] != 0 && answer[m] == DEPOSED -> answer[m] = NOTHING; step_down(m) }
  /* Removes what its snapshot covers, and does not wait for the answer. */
  :: d_step { role[m] == LEADS && INDEX(pointer_nonce) >= first && HAS_ROOM ->
      i = PLACE;
      a_term[i] = term[m]; a_old[i] = first; a_new[i] = INDEX(pointer_nonce) + 1; i = 0 }
  /* A follower's copy moves on. */
  :: d_step { role[m] == FOLLOWS && copy_nonce[m] != tail -> catch_up(m) }
  :: d_step { role[m] != FOLLOWS -> abandon(m); step_down(m) }
  :: d_step { copy_nonce[m] != 0 -> abandon(m); step_down(m); copy[m] = 0; copy_nonce[m] = 0 }
  od
}

proctype etcd() {
end_etcd:
  do
  :: d_step { key != 0 -> key = 0 }
  :: d_step { a_term[0] != 0 -> land(0) }
  :: d_step { a_term[0] != 0 -> clear(0) }
  :: d_step { a_term[1] != 0 -> land(1) }
  :: d_step { a_term[1] != 0 -> clear(1) }
  od
}

init { atomic { run member(0); run member(1); run etcd() } }
