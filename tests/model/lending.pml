/* A message whose sender lends its memory (lockstep/comm/backends/shared/messages.cpp), for SPIN: two messages through the only letter,
 * a receiver that may be unable to read the other's memory, and either of them may die, or a third rank fails at any moment.
 *
 *   here            there
 *   letter_is_free  SendOperation::publish, its first look
 *   offer, wait     SendOperation::lend, try_advance, withdraw: patience may end at any moment
 *   stage           SendOperation::copy_in, of one piece
 *   take            ReceiveOperation::take_lent and take_letter; a copy is two steps, so that something may change in it
 *   caller          the memory that is lent: the message's number while the call lasts, 0 when the caller has it back
 *
 * What is received is what was sent; and a call that neither fails nor is complete goes on: anything else is an invalid end state. */
#define MESSAGES 2
#define PACK(number, state) ((number) * 4 + (state))
#define OFFERED 1
#define TAKING 2
#define STAGED 3

byte sequence, taken, staged, lent;
byte caller, block;
bool sender_died, receiver_died, failure;

proctype Sender() {
  byte n;
  {
    n = 1;
next:
    caller = n;
#ifndef MUTANT_LETTER_USED_AGAIN_AT_ONCE
    do
    :: failure -> goto end
    :: taken == n - 1 -> break
    :: receiver_died -> failure = true
    od;
#endif
    lent = PACK(n, OFFERED);
    sequence = n;
    do
    :: failure -> goto end
    :: taken == n -> goto sent
    :: lent == PACK(n, STAGED) -> break
#ifdef MUTANT_WITHDRAWN_WITHOUT_CAS
    :: lent == PACK(n, OFFERED) -> lent = PACK(n, STAGED); break
#else
    :: atomic { lent == PACK(n, OFFERED) -> lent = PACK(n, STAGED) }; break
#endif
    :: receiver_died -> failure = true
    od;
#ifdef MUTANT_STAGED_BEFORE_COPIED
    staged = n;
    block = caller;
#else
    block = caller;
    staged = n;
#endif
sent:
    caller = 0;
    n++;
    if
    :: n <= MESSAGES -> goto next
    :: n > MESSAGES
    fi
  } unless { sender_died };
end:
  if
  :: !sender_died -> caller = 0 /* the call has thrown */
  :: sender_died                /* what the receiver has mapped stays; the rest cannot be read any more */
  fi
}

proctype Receiver() {
  byte n, first, second;
  {
    n = 1;
next:
    do
    :: failure -> goto end
    :: sequence >= n -> break
    :: sender_died && sequence < n -> failure = true
    od;
    do
    :: failure -> goto end
    :: atomic { lent == PACK(n, OFFERED) -> lent = PACK(n, TAKING) };
       if
       :: /* it can be read */
#ifdef MUTANT_TAKEN_BEFORE_COPIED
          taken = n;
#endif
          first = caller;
          second = caller;
          break
       :: lent = PACK(n, STAGED)
       fi
    :: staged == n -> first = block; second = block; break
    :: sender_died && staged != n -> failure = true
    od;
    taken = n;
#ifndef MUTANT_FAILURE_NOT_LOOKED_AT_AGAIN
    if
    :: failure -> goto end
    :: !failure
    fi;
#endif
    assert(first == n && second == n);
    n++;
    if
    :: n <= MESSAGES -> goto next
    :: n > MESSAGES
    fi
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
