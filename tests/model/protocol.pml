/* The protocol of collectives over shared memory (lockstep/comm/backends/segment/layout.h), for SPIN: three ranks, three
 * collectives in a ring of two slots, two slices, and one fault: a rank dies at any point, or ranks lose patience with one that
 * is stopped. A stopped rank is one that takes no step for a while, which every rank here may do anywhere.
 *
 *   here                      there
 *   post                      CollectiveOperation::post, Contribution::put and the like, Sequencer::post, SlotFree
 *   advance, succeed          Operation::advance, CollectiveOperation::try_advance and finish, what the verbs call move()
 *   claim_slice ... count     Slices::work, Reduction::reduce_slice
 *   give_up, READABLE         Contribution::give_up, Arena::condemn, Context::throw_unusable
 *   record                    PendingOperations::wait, Diagnosis::lost_peer, FailureRecord::record
 *   retired                   free_finished, Stage::take
 *
 * At each turn a rank does anything that is possible: post the next collective, work on the oldest that can go on, free a block,
 * find a dead peer. A state in which a rank is not through and can do nothing is a wait that does not end; SPIN reports it as an
 * invalid end state. How ranks sleep meanwhile is in sleeping.pml, the window of large reductions in window.pml.
 *
 * Properties
 *   results     a rank's result is made of what all ranks contributed to this very collective, all slices reduced
 *   memory      whoever reads or writes a line or a block finds it in use for the collective that he is in, also after a failure
 *   ends        every rank ends, and every call with its result or the failure
 *   agreement   all ranks that see the failure see the same
 *   complete    what was complete when the failure was recorded becomes a result for every rank
 *
 * Ranks are alike, so that rank 0 dies or is stopped stands for any. What stands between two semicolons outside of "atomic" is a
 * step of its own. Memory is sequentially consistent here: the orders of the atomics are the business of ThreadSanitizer (CTest:
 * tsan_core) and tools/memory_order_mutants.py. Limit: a rank that is stopped just between WRITING and WRITTEN for more than
 * 100 ms lets others report less than it will; the model lets only a dead one do that. -DMUTANT_... breaks a rule (run_models.py). */
#define RANKS 3
#define SLOTS 2
#define OPS 3
#define SLICES 2

#define STAGED 0   /* slices of copies in blocks of the ranks' segments; each takes its result out of its own */
#define IN_PLACE 1 /* slices of the callers' own memory, where the others write the result */
#define GATHER 2   /* each reads the copies of all: all_gather, and all_reduce in one shot */
#define LENT 3     /* each reads the callers' own memory, which its owner gets back when all have */
#define INLINE 4   /* each reads the lines of all, which hold the contributions themselves; barrier */

#ifndef KIND /* of collectives 1 and 3, and of 2 */
#define KIND STAGED
#define KIND_OF_2 INLINE
#endif
#define KIND_OF(s) ((s) == 2 -> KIND_OF_2 : KIND)
#define SLOT(s) ((s) % SLOTS)
#define LINE(s, r) (SLOT(s) * RANKS + (r))
#define BLOCK(s, r) (SLOT(s) * RANKS + (r)) /* as many as slots, so that collective 3 needs the memory of 1 again */

/* What a line or a slice of a block holds: nothing, what a rank put in for collective s, the sum for collective s. */
#define GARBAGE 0
#define INPUT(s) (2 * (s))
#define SUM(s) (2 * (s) + 1)

byte sequence[SLOTS * RANKS];
byte line[SLOTS * RANKS];
byte finished[RANKS]; /* all collectives up to this one */
byte claim[SLOTS * SLICES]; /* 2 s + 1: slice claimed for s; a word of an older collective: not */
byte done[SLOTS * RANKS];   /* PACK(s, slices reduced by this rank) */
byte use[SLOTS * RANKS];    /* the collective for which this block is in use; 0: free */
bool retired[SLOTS * RANKS]; /* in use until all have finished */
byte slice0[SLOTS * RANKS];  /* contents of the blocks, by slice */
byte slice1[SLOTS * RANKS];

mtype = { NONE, WRITING, WRITTEN };
mtype failure = NONE;
byte text;     /* who recorded it, + 1 */
byte reporter; /* who is between WRITING and WRITTEN, + 1 */

bool dead; /* rank 0 */
bool late; /* rank 0 is stopped for so long that the others lose patience */
bool left[RANKS];

byte complete; /* for the properties only: bit s: all slices of s were counted */
byte complete_before_failure;
byte seen_text; /* the failure that the first rank saw */

#define PACK(s, n) ((s) * (SLICES + 1) + (n))
#ifdef MUTANT_WORDS_WITHOUT_SEQUENCE
#define IS_CLAIMED(s, n) (claim[SLOT(s) * SLICES + n] != 0)
#else
#define IS_CLAIMED(s, n) (claim[SLOT(s) * SLICES + n] == 2 * (s) + 1)
#endif
#define NUMBER(word, s) ((word) / (SLICES + 1) == (s) -> (word) % (SLICES + 1) : 0)
#define IS_SLICED(s) (KIND_OF(s) == STAGED || KIND_OF(s) == IN_PLACE)
#define ALL_POSTED(s) (sequence[LINE(s, 0)] == (s) && sequence[LINE(s, 1)] == (s) && sequence[LINE(s, 2)] == (s))
#define HAS_FINISHED(s, r) (finished[r] >= (s) || left[r])
#define ALL_FINISHED(s) (HAS_FINISHED(s, 0) && HAS_FINISHED(s, 1) && HAS_FINISHED(s, 2))
#define ALL_DONE(s) (NUMBER(done[LINE(s, 0)], s) + NUMBER(done[LINE(s, 1)], s) + NUMBER(done[LINE(s, 2)], s) >= SLICES)
#define READY(s) (ALL_POSTED(s) && (!IS_SLICED(s) || ALL_DONE(s)))

#ifdef MUTANT_SLOT_USED_AGAIN_AT_ONCE
#define SLOT_FREE(s) true
#else
#define SLOT_FREE(s) ((s) <= SLOTS || ALL_FINISHED((s) - SLOTS))
#endif

#define UNPOSTED 0
#define PENDING 1
#define LENDING 2 /* over, but others may still read the caller's memory */
#define OVER 3
#define IS_OPEN(s) (state[s] == PENDING || state[s] == LENDING)
#define CAN_GO_ON(s)                                                                                                        \
  (IS_OPEN(s) && (failure != NONE || (state[s] == LENDING && ALL_FINISHED(s)) ||                                            \
                  (state[s] == PENDING && ALL_POSTED(s) && (READY(s) || !IS_CLAIMED(s, 0) || !IS_CLAIMED(s, 1)))))
#define ALL_OVER (next > OPS && !IS_OPEN(1) && !IS_OPEN(2) && !IS_OPEN(3))

inline check_blocks() { assert(use[BLOCK(s, 0)] == s && use[BLOCK(s, 1)] == s && use[BLOCK(s, 2)] == s) }

inline give_block_back(b) {
  use[b] = 0;
  retired[b] = false;
  slice0[b] = GARBAGE;
  slice1[b] = GARBAGE
}

/* Nobody looks before the sequence is there, so all of it is one step. */
inline post() {
  if
  :: KIND_OF(next) != INLINE ->
     use[BLOCK(next, me)] = next;
     slice0[BLOCK(next, me)] = INPUT(next);
     slice1[BLOCK(next, me)] = INPUT(next)
  :: else
  fi;
  line[LINE(next, me)] = INPUT(next);
  sequence[LINE(next, me)] = next;
  state[next] = PENDING;
  next++
}

/* One number per rank: what is over without a gap. */
inline finish(then) {
  state[s] = then;
  do
  :: finished[me] < OPS && state[finished[me] + 1] >= LENDING -> finished[me]++
  :: else -> break
  od
}

/* What a rank says of the failure: who wrote it, or that he died while he did. */
#define DIED_WRITING (failure == WRITING && dead && reporter == 1)
#ifdef MUTANT_FAILURE_READ_BEFORE_WRITTEN
#define READABLE (failure != NONE)
#else
#define READABLE (failure == WRITTEN || DIED_WRITING)
#endif
#define TEXT (DIED_WRITING -> RANKS + 2 : text + 1)

inline read_failure() {
  if
  :: seen_text == 0 -> seen_text = TEXT
  :: else -> assert(seen_text == TEXT)
  fi
}

inline find_unclaimed() { /* n: own region first; SLICES: none */
  n = me % SLICES;
  if
  :: IS_CLAIMED(s, n) ->
     n = 1 - n;
     if
     :: IS_CLAIMED(s, n) -> n = SLICES
     :: else
     fi
  :: else
  fi
}

inline claim_slice() {
  if
  :: n < SLICES -> claim[SLOT(s) * SLICES + n] = 2 * s + 1
  :: else
  fi
}

#define SLICE(b) (n == 0 -> slice0[b] : slice1[b])
#define IS_INPUT(b) (slice0[b] == INPUT(s) && slice1[b] == INPUT(s))
#define ALL_INPUT (IS_INPUT(BLOCK(s, 0)) && IS_INPUT(BLOCK(s, 1)) && IS_INPUT(BLOCK(s, 2)))

inline read_slices() {
  check_blocks();
  value = (SLICE(BLOCK(s, 0)) == INPUT(s) && SLICE(BLOCK(s, 1)) == INPUT(s) && SLICE(BLOCK(s, 2)) == INPUT(s) -> SUM(s) : GARBAGE)
}

inline write_slices() {
  check_blocks();
  if
  :: n == 0 ->
     slice0[BLOCK(s, 0)] = value;
     slice0[BLOCK(s, 1)] = value;
     slice0[BLOCK(s, 2)] = value
  :: else ->
     slice1[BLOCK(s, 0)] = value;
     slice1[BLOCK(s, 1)] = value;
     slice1[BLOCK(s, 2)] = value
  fi
}

inline count() {
  done[LINE(s, me)] = PACK(s, NUMBER(done[LINE(s, me)], s) + 1);
  if
  :: ALL_DONE(s) -> complete = complete | (1 << s)
  :: else
  fi
}

#define RETIRED_AND_FREE(op) (retired[BLOCK(op, me)] && ALL_FINISHED(use[BLOCK(op, me)]))

proctype Rank(byte me) {
  byte next; /* to be posted */
  byte state[OPS + 1];
  byte s;    /* in hand */
  byte n;    /* slice */
  byte value;
  {
    next = 1;
turn:
    if
    :: atomic { next <= OPS && failure == NONE && SLOT_FREE(next) && (KIND_OF(next) == INLINE || use[BLOCK(next, me)] == 0) ->
         s = next
       };
       atomic { s = 0; post(); goto turn } /* the failure was looked at before */
    :: atomic { next <= OPS && READABLE -> read_failure(); next = OPS + 1; goto turn }
    :: atomic { CAN_GO_ON(1) -> s = 1 }
    :: atomic { !(CAN_GO_ON(1)) && CAN_GO_ON(2) -> s = 2 }
    :: atomic { !(CAN_GO_ON(1)) && !(CAN_GO_ON(2)) && CAN_GO_ON(3) -> s = 3 }
    /* Freed as late as possible: when the memory is wanted, or after a failure. Who comes too late for that is late for earlier, too. */
    :: atomic { RETIRED_AND_FREE(1) && (next == 3 || failure != NONE && ALL_OVER) -> give_block_back(BLOCK(1, me)); goto turn }
    :: atomic { RETIRED_AND_FREE(2) && failure != NONE && ALL_OVER -> give_block_back(BLOCK(2, me)); goto turn }
    :: failure == NONE && !ALL_OVER && (dead || late && me != 0) -> goto record
    :: atomic { ALL_OVER -> left[me] = true; goto end }
    fi;

    /* advance. That the failure is looked at and a slice is claimed in one step leaves nothing out: a failure that comes in
     * between is one that comes right behind. */
    atomic {
#ifdef MUTANT_FAILURE_LOOKED_AT_LAST
      if
      :: state[s] == PENDING && READY(s) -> goto succeed
      :: else
      fi
    };
    atomic {
      if
      :: failure != NONE -> goto give_up
      :: else
      fi;
#endif
      if
      :: state[s] == PENDING && READY(s) -> goto succeed
      :: state[s] == LENDING && ALL_FINISHED(s) ->
         give_block_back(BLOCK(s, me));
         state[s] = OVER;
         s = 0;
         goto turn
      :: else ->
         if
         :: failure != NONE -> goto give_up
         :: else
         fi
      fi;
      find_unclaimed();
#ifdef MUTANT_CLAIM_WITHOUT_CAS
    };
    atomic {
#endif
      claim_slice();
      if
      :: n == SLICES -> n = 0; s = 0; goto turn
      :: else
      fi
    };
#ifdef MUTANT_COUNTED_BEFORE_WRITTEN
    atomic { count() };
#endif
    atomic { read_slices(); write_slices(); value = 0; n = 0 };
#ifdef MUTANT_COUNTED_BEFORE_WRITTEN
    atomic { s = 0; goto turn };
#endif
#ifndef MUTANT_COUNTED_AFTER_FAILURE
    /* Whoever has given up uses his memory as he likes: what was read after that must not become a result. */
    if
    :: atomic { failure != NONE -> s = 0; goto turn }
    :: failure == NONE
    fi;
#endif
    atomic { count(); s = 0; goto turn };

succeed:
    if
    :: atomic { IS_SLICED(s) ->
         assert(use[BLOCK(s, me)] == s);
         assert(slice0[BLOCK(s, me)] == SUM(s) && slice1[BLOCK(s, me)] == SUM(s));
         if
         :: KIND_OF(s) == IN_PLACE -> give_block_back(BLOCK(s, me)) /* the caller goes on with his memory at once */
         :: else -> retired[BLOCK(s, me)] = true
         fi;
         finish(OVER);
         s = 0;
         goto turn
       }
    :: KIND_OF(s) == GATHER ->
#ifdef MUTANT_FINISHED_BEFORE_READING
       atomic { retired[BLOCK(s, me)] = true; finish(OVER) };
       atomic { check_blocks(); assert(ALL_INPUT); s = 0; goto turn }
#else
       atomic { check_blocks(); assert(ALL_INPUT) };
       atomic {
#ifdef MUTANT_BLOCK_FREED_BY_OWN_FINISH
         give_block_back(BLOCK(s, me));
#else
         retired[BLOCK(s, me)] = true;
#endif
         finish(OVER);
         s = 0;
         goto turn
       }
#endif
    :: KIND_OF(s) == LENT ->
       atomic { value = (ALL_INPUT -> 1 : 0) };
       atomic { /* looked at behind the reading */
#ifndef MUTANT_LENT_AND_NOT_LOOKED_AT_AGAIN
         if
         :: failure != NONE -> value = 0; goto give_up
         :: else
         fi;
#endif
         assert(value == 1);
         value = 0
       };
       atomic {
#ifdef MUTANT_LENT_RETURNED_AT_ONCE
         give_block_back(BLOCK(s, me));
         finish(OVER);
#else
         finish(LENDING);
#endif
         s = 0;
         goto turn
       }
    :: KIND_OF(s) == INLINE ->
       assert(line[LINE(s, 0)] == INPUT(s) && line[LINE(s, 1)] == INPUT(s) && line[LINE(s, 2)] == INPUT(s));
       atomic { finish(OVER); s = 0; goto turn }
    fi;

give_up:
    atomic { READABLE ->
      assert((complete_before_failure >> s & 1) == 0);
      read_failure();
      state[s] = OVER;
      if
      :: KIND_OF(s) == IN_PLACE ->
#ifdef MUTANT_FREED_INSTEAD_OF_CONDEMNED
         give_block_back(BLOCK(s, me))
#else
         slice0[BLOCK(s, me)] = GARBAGE; /* the caller does with his memory what he likes; condemned: never used again */
         slice1[BLOCK(s, me)] = GARBAGE
#endif
      :: KIND_OF(s) == LENT -> give_block_back(BLOCK(s, me))
      :: KIND_OF(s) == INLINE
      :: KIND_OF(s) == STAGED || KIND_OF(s) == GATHER ->
#ifdef MUTANT_FREED_INSTEAD_OF_RETIRED
         give_block_back(BLOCK(s, me))
#else
         retired[BLOCK(s, me)] = true
#endif
      fi;
      s = 0;
      goto turn
    };

record:
    if
#ifdef MUTANT_FAILURE_RECORDED_WITHOUT_CAS
    :: atomic { true -> failure = WRITING; reporter = me + 1; complete_before_failure = complete }
#else
    :: atomic { failure == NONE -> failure = WRITING; reporter = me + 1; complete_before_failure = complete }
    :: failure != NONE -> goto turn
#endif
    fi;
    text = me + 1;
    atomic { failure = WRITTEN; goto turn }
  } unless {
    atomic { me == 0 && dead -> next = 0; state[1] = 0; state[2] = 0; state[3] = 0; s = 0; n = 0; value = 0 } /* fewer states */
  };
end:
  skip
}

/* The fault, at any time or never. */
init {
  atomic {
    run Rank(0);
    run Rank(1);
    run Rank(2)
  };
  if
#ifdef DEATH
  :: dead = true
#else
  :: late = true
#endif
  :: skip
  fi
}
