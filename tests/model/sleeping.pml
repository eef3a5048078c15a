/* How ranks sleep and are woken (lockstep/comm/backends/shared/backoff.h, Control::ring in segment/layout.cpp), for SPIN: three ranks, each
 * of which twice changes something that the others wait for and then waits for theirs, and one of which may die.
 *
 *   here       there
 *   ring       Control::ring; the fence is the order of its first two steps
 *   wait       Backoff::pause; likewise. The spinning before it is left out: it only looks
 *   asleep     the kernel's queue of the futex: sleeping and comparing the word are one step of it
 *
 * The 10 ms after which a sleeper wakes by itself are left out until a rank is dead: a rank that sleeps through what it waits for
 * sleeps forever here, an invalid end state. A rank that dies between its change and its ring is what needs them. Rank 1 reports
 * the death; then there are no 10 ms any more, and rank 2 must be woken by the report. */
#define RANKS 3
#define ROUNDS 2

byte changed[RANKS];
byte sleepers, doorbell;
bool asleep[RANKS];
bool dead, failure;

#define IS_READY (failure || (changed[0] >= round && changed[1] >= round && changed[2] >= round))

inline ring() {
#ifdef MUTANT_RUNG_WITHOUT_FENCE /* the change is seen after `sleepers` was read */
  atomic {
    if
    :: looked == 0 -> goto quiet
    :: else
    fi
  };
#else
  if
  :: sleepers == 0 -> goto quiet
  :: sleepers != 0
  fi;
#endif
#ifndef MUTANT_RUNG_WITHOUT_COUNTING
  doorbell++;
#endif
  atomic { asleep[0] = false; asleep[1] = false; asleep[2] = false }
}

proctype Rank(byte me) {
  byte round, seen, looked;
  {
    round = 1;
change:
#ifdef MUTANT_RUNG_WITHOUT_FENCE
    looked = sleepers;
#endif
    changed[me] = round;
rung:
    ring();
quiet:
    do
    :: atomic { IS_READY ->
         seen = 0;
         looked = 0;
         if
         :: failure || round == ROUNDS -> goto end
         :: else -> round++; goto change
         fi
       }
    :: !(IS_READY) ->
#ifdef MUTANT_SLEPT_WITHOUT_A_SECOND_LOOK
       sleepers++;
       seen = doorbell;
       atomic {
         if
         :: doorbell == seen -> asleep[me] = true
         :: else
         fi
       };
#else
#ifdef MUTANT_ADDED_TO_SLEEPERS_TOO_LATE /* what a missing fence permits: the second look before the addition is seen */
       seen = doorbell;
       looked = IS_READY;
       sleepers++;
#else
#ifdef MUTANT_DOORBELL_READ_TOO_LATE
       sleepers++;
       looked = IS_READY;
       seen = doorbell;
#else
       sleepers++;
       seen = doorbell;
       looked = IS_READY;
#endif
#endif
       atomic {
         if
         :: !looked && doorbell == seen -> asleep[me] = true
         :: else
         fi;
         looked = 0
       };
#endif
       if
       :: !asleep[me]
       :: atomic { dead && !failure -> asleep[me] = false };
          if
          :: atomic { me == 1 && !(IS_READY) -> failure = true };
             sleepers--;
             goto rung
          :: me != 1 || IS_READY
          fi
       fi;
       sleepers--
    od
  } unless { atomic { me == 0 && dead -> round = 0; seen = 0; looked = 0 } };
end:
  skip
}

init {
  atomic {
    run Rank(0);
    run Rank(1);
    run Rank(2)
  };
#ifdef DEATH
  dead = true
#endif
}
