/* What every rank has for every other, through windows (lockstep/comm/backends/shared/passage.h), for SPIN: three ranks, windows of two
 * slots, two calls that follow each other, and one fault as in protocol.pml. UNEVEN: rank 0 has four chunks for rank 1, rank 1 one and
 * rank 2 two for rank 0, and nobody any for rank 2; else each has three for each.
 *
 *   here                  there
 *   CAN_GIVE, CAN_TAKE    Passage::may_give, may_take
 *   put, look             give and what takes the pieces
 *   took                  WindowLine::done
 *   next                  CollectiveOperation::try_advance: what is lent is in use until all have finished
 *
 * What was put into a slot is checked where it is taken; a rank that waits for ever is an invalid end. */
#define RANKS 3
#define SLOTS 2
#define CALLS 2

#ifdef UNEVEN
#define COUNT(r, q) ((r) == 0 -> ((q) == 1 -> 4 : 0) : ((q) == 0 -> (r) : 0))
#define GIVES(r) ((r) == 0 -> 4 : (r))
#define TAKES(r) ((r) == 0 -> 2 : ((r) == 1 -> 4 : 0))
#else
#define COUNT(r, q) 3
#define GIVES(r) 3
#define TAKES(r) 3
#endif

/* Words of (call, chunks), of which the largest number means all. */
#define ALL 7
#define WORD(call, chunks) ((call) * 8 + (chunks))
#define DATA(call, c) (WORD(call, c) + 1)
#define PLACE(r, c, q) (((r) * SLOTS + (c) % SLOTS) * RANKS + (q))

byte window[RANKS * SLOTS * RANKS];
byte in[RANKS];
byte took[RANKS];
byte finished[RANKS]; /* calls */
bool dead, late, failure;

#define NEXT(r) (((r) + 1) % RANKS)
#define LAST(r) (((r) + 2) % RANKS)
#define LESS(a, b) ((a) < (b) -> (a) : (b))

#ifdef MUTANT_SLOT_FILLED_TOO_SOON
#define IS_FREE true
#else
#define IS_FREE (given < SLOTS || took[NEXT(me)] >= WORD(call, given + 1 - SLOTS) && took[LAST(me)] >= WORD(call, given + 1 - SLOTS))
#endif
#define CAN_GIVE (given < GIVES(me) && IS_FREE)

#ifdef MUTANT_TAKEN_TOO_SOON
#define HAS_GIVEN(r) true
#else
#define HAS_GIVEN(r) (COUNT(r, me) == 0 || in[r] >= WORD(call, LESS(taken + 1, COUNT(r, me))))
#endif
#define CAN_TAKE (taken < TAKES(me) && HAS_GIVEN(NEXT(me)) && HAS_GIVEN(LAST(me)))

inline put(q) {
  if
  :: given < COUNT(me, q) -> window[PLACE(me, given, q)] = DATA(call, given)
  :: else
  fi
}

inline look(r) {
  if
  :: taken < COUNT(r, me) -> assert(window[PLACE(r, taken, me)] == DATA(call, taken))
  :: else
  fi
}

inline publish_taken(chunks) {
#ifdef MUTANT_END_NOT_TOLD
  took[me] = WORD(call, chunks)
#else
  took[me] = WORD(call, (chunks == TAKES(me) -> ALL : chunks))
#endif
}

inline publish_none() {
  if
  :: TAKES(me) == 0 -> publish_taken(0)
  :: else
  fi
}

proctype Rank(byte me) {
  byte call, given, taken;
  {
    publish_none();
turn:
    if
    :: atomic { CAN_GIVE ->
#ifdef MUTANT_GIVEN_COUNTED_BEFORE_COPIED
       in[me] = WORD(call, given + 1) };
       atomic { put(NEXT(me)); put(LAST(me)); given++; goto turn }
#else
       put(NEXT(me)); put(LAST(me)) };
       atomic { given++; in[me] = WORD(call, given); goto turn }
#endif
    :: atomic { CAN_TAKE ->
#ifdef MUTANT_TAKEN_COUNTED_BEFORE_COPIED
       publish_taken(taken + 1) };
       atomic { look(NEXT(me)); look(LAST(me)); taken++; goto turn }
#else
       look(NEXT(me)) };
       atomic { look(LAST(me)); taken++ };
       atomic { publish_taken(taken); goto turn }
#endif
    :: atomic { given == GIVES(me) && taken == TAKES(me) -> finished[me] = call + 1 };
       goto next
    :: atomic { failure -> goto end }
    :: atomic { !failure && (dead || late && me != 0) -> failure = true; goto end }
    fi;
next:
    if
#ifdef MUTANT_NEXT_CALL_TOO_SOON
    :: atomic { true ->
#else
    :: atomic { finished[NEXT(me)] > call && finished[LAST(me)] > call ->
#endif
       call++; given = 0; taken = 0;
       if
       :: call == CALLS -> goto end
       :: else
       fi };
       publish_none();
       goto turn
    :: atomic { failure -> goto end }
    :: atomic { !failure && (dead || late && me != 0) -> failure = true; goto end }
    fi
  } unless { atomic { me == 0 && dead } };
end:
  skip
}

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
