// become_background_thread: gives the calling thread a low priority. Beside a computing thread on
// the same CPU it gets about a thirtieth of the time, which bounds what a training loses. On an idle CPU it
// gets all of it.
//
//   std::thread([] { become_background_thread("checkpoint"); write(); });
//
// Its disk accesses come after those of other threads if the kernel's I/O scheduler supports priorities.
// `name` has at most 15 characters, and `top -H` shows it. Never fails: if the kernel refuses a change, that
// priority stays as it was.
#pragma once

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

void become_background_thread(const char* name);

}  // namespace lockstep
