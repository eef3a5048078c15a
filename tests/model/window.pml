/* The window of large reductions of private memory (lockstep/comm/backends/shared/window.h), for SPIN: three ranks, windows of two
 * slots, four chunks in one collective (PER_CALL 4) or in two that follow each other (PER_CALL 2), and one fault as in protocol.pml.
 *
 *   here                         there
 *   CAN_COPY_IN ... CAN_COPY_OUT WindowReduction::step, with its all_reached()
 *   copy_in, copy_out            the functions of these names; read and write: reduce_portion
 *   give_up                      Operation::advance behind a failure; the window stays as it is for good
 *
 * The slot of chunk c has a portion for each other rank: rank r puts what portion q is to be reduced from there, and rank q
 * writes the result over it. What was written is checked where it is read; results, memory and ends are the properties of
 * protocol.pml. Nobody waits for others to have copied out: each fills only its own window, and only what it has copied out. */
#define RANKS 3
#define SLOTS 2
#define CHUNKS 4
#ifndef PER_CALL
#define PER_CALL 4
#endif

#define GARBAGE 0
#define INPUT(c) (2 * (c) + 1)
#define SUM(c) (2 * (c) + 2)
/* The second collective, of another size, has its portions elsewhere. */
#define PORTION(r, c, q) (((r) * SLOTS + (c) % SLOTS) * RANKS + ((q) + (c) / PER_CALL) % RANKS)

byte window[RANKS * SLOTS * RANKS];
byte in[RANKS]; /* chunks, counted through all collectives as the words (sequence, chunk) are */
byte reduced[RANKS];
byte out[RANKS]; /* each rank's own business; here for all to see */
bool freed[RANKS]; /* the window's memory is used for something else */
bool dead, late, failure;

#define ALL(counter, c) (counter[0] >= (c) && counter[1] >= (c) && counter[2] >= (c))
#define CALL (out[me] / PER_CALL)
#ifdef MUTANT_INPUT_OVERWRITTEN
#define HAS_ROOM true
#else
#define HAS_ROOM (in[me] < out[me] + SLOTS)
#endif
#define CAN_COPY_IN (in[me] < CHUNKS && in[me] < (CALL + 1) * PER_CALL && HAS_ROOM)
#ifdef MUTANT_REDUCED_TOO_EARLY
#define HAS_INPUT true
#else
#define HAS_INPUT ALL(in, reduced[me] + 1)
#endif
#define CAN_REDUCE (reduced[me] < in[me] && HAS_INPUT)
#ifdef MUTANT_COPIED_OUT_TOO_EARLY
#define HAS_RESULTS true
#else
#define HAS_RESULTS ALL(reduced, out[me] + 1)
#endif
#define CAN_COPY_OUT (out[me] < reduced[me] && HAS_RESULTS)

#define NEXT(r) (((r) + 1) % RANKS)
#define LAST(r) (((r) + 2) % RANKS)

inline copy_in(c) {
  window[PORTION(me, c, NEXT(me))] = INPUT(c);
  window[PORTION(me, c, LAST(me))] = INPUT(c)
}

inline read(c) {
  assert(window[PORTION(NEXT(me), c, me)] == INPUT(c) && window[PORTION(LAST(me), c, me)] == INPUT(c))
}

inline write(c) {
  assert(!freed[NEXT(me)] && !freed[LAST(me)]);
  window[PORTION(NEXT(me), c, me)] = SUM(c);
  window[PORTION(LAST(me), c, me)] = SUM(c)
}

inline copy_out(c) {
  assert(window[PORTION(me, c, NEXT(me))] == SUM(c) && window[PORTION(me, c, LAST(me))] == SUM(c))
}

inline give_up() {
#ifdef MUTANT_FREED_AFTER_FAILURE
  freed[me] = true;
#endif
  skip
}

proctype Rank(byte me) {
  byte c;
  {
    c = 0;
turn:
    if
    :: atomic { CAN_COPY_IN -> c = in[me] };
#ifdef MUTANT_IN_COUNTED_BEFORE_COPIED
       in[me] = c + 1;
       atomic { copy_in(c); c = 0; goto turn }
#else
       atomic { copy_in(c) };
       atomic { in[me] = c + 1; c = 0; goto turn }
#endif
    :: atomic { CAN_REDUCE -> c = reduced[me] };
#ifdef MUTANT_REDUCED_COUNTED_BEFORE_WRITTEN
       atomic { read(c) };
       reduced[me] = c + 1;
       atomic { write(c); c = 0; goto turn }
#else
       atomic { read(c) };
       atomic { write(c) };
       atomic { reduced[me] = c + 1; c = 0; goto turn }
#endif
    :: atomic { CAN_COPY_OUT -> c = out[me] };
       atomic { copy_out(c); out[me] = c + 1; c = 0; goto turn }
    :: atomic { failure && out[me] < CHUNKS -> give_up(); goto end }
    :: atomic { !failure && out[me] < CHUNKS && (dead || late && me != 0) -> failure = true; goto turn }
    :: out[me] == CHUNKS -> goto end
    fi
  } unless { atomic { me == 0 && dead -> c = 0 } };
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
