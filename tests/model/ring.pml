/* A message that its sender pours through a ring (lockstep/comm/backends/shared/messages.cpp), for SPIN: it has PIECES pieces, of which PLACES
 * are in the ring at once, and its receiver may come at any moment, or too late; either of them may die, or a third rank fails.
 *
 *   here            there
 *   offer, withdraw SendOperation::lend, try_advance, withdraw: patience may end at any moment
 *   pour            SendOperation::pour
 *   take            ReceiveOperation::take_lent, the compare-and-swap
 *   empty           ReceiveOperation::empty_ring; a copy is two steps, so that something may change in it
 *   caller          the memory that is sent: true while the call lasts
 *
 * What is received is what was sent, piece by piece; and a call that neither fails nor is complete goes on. */
#define PIECES 4
#define PLACES 2
#define OFFERED 1
#define TAKING 2
#define STAGED 3

byte lent, poured, emptied;
bool staged, taken, caller;
byte ring[PLACES];
bool sender_died, receiver_died, failure;

proctype Sender() {
  byte p;
  {
    caller = true;
    lent = OFFERED;
    do
    :: failure -> goto end
    :: lent == TAKING -> break
#ifdef MUTANT_WITHDRAWN_WITHOUT_CAS
    :: lent == OFFERED -> lent = STAGED; staged = true; goto sent
#else
    :: atomic { lent == OFFERED -> lent = STAGED }; staged = true; goto sent
#endif
    :: receiver_died -> failure = true
    od;
in:
    do
    :: failure -> goto end
#ifdef MUTANT_RING_FILLED_TOO_SOON
    :: p < emptied + PLACES + 1 -> break
#else
    :: p < emptied + PLACES -> break
#endif
    :: receiver_died -> failure = true
    od;
#ifdef MUTANT_POURED_BEFORE_COPIED
    poured = p + 1;
    ring[p % PLACES] = p + 1;
#else
    ring[p % PLACES] = p + 1;
    poured = p + 1;
#endif
    p++;
    if
    :: p < PIECES -> goto in
    :: p == PIECES
    fi;
sent:
    caller = false
  } unless { sender_died };
end:
  skip
}

proctype Receiver() {
  byte p, first, second;
  {
    do
    :: failure -> goto end
    :: atomic { lent == OFFERED -> lent = TAKING }; break
    :: lent == STAGED && staged -> goto whole
    :: sender_died && lent != OFFERED && !staged -> failure = true
    od;
out:
    do
    :: failure -> goto end
    :: poured > p -> break
    :: sender_died && poured <= p -> failure = true
    od;
#ifdef MUTANT_EMPTIED_BEFORE_COPIED
    emptied = p + 1;
#endif
    first = ring[p % PLACES];
    second = ring[p % PLACES];
    emptied = p + 1;
    assert(first == p + 1 && second == p + 1);
    p++;
    if
    :: p < PIECES -> goto out
    :: p == PIECES
    fi;
whole:
    taken = true
  } unless { receiver_died };
end:
  skip
}

init {
  atomic { run Sender(); run Receiver() };
#ifdef DEATH
  if
  :: sender_died = true
  :: receiver_died = true
  :: skip
  fi
#else
  if
  :: failure = true
  :: skip
  fi
#endif
}
