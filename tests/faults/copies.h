// Ranks of trials as copies of one process that has loaded libtorch, because loading takes longer than a
// trial. peers_support.py asks for each rank; it is the parent of the copies (PR_SET_CHILD_SUBREAPER), so
// that it sees how they end.
//
//   peers_support.py ── arguments, environment, folder; output, ends of the hub ──▶ PROGRAM --copies
//   CONNECTION
//                    ◀── pid ─────────────────────────────────────────────────────          │ fork(), twice
#pragma once

namespace lockstep::trial {

// First in main(). A process started with --copies stays in here until its connection closes and then exits;
// each of its copies returns, with its own arguments. In any other process it does nothing. True in a copy,
// which ends with _exit().
bool serve_copies(int* argc, char*** argv);

}  // namespace lockstep::trial
