// CallArchive: every call that this process makes on any of its groups during a span of time, also when there
// are more than the rings of its flight recorders hold, and on groups that are gone by then. For the
// profiler.
//
//   CallArchive archive;                                        // from here ...
//   ...
//   for (const GroupTrace& group : archive.groups()) ...        // ... to here: calls that were under way at
//                                                               // some time of it
//
// Who         one at a time in a process; another throws InvalidArgument. Any thread.
// Cost        while there is one, a call that overwrites another in its ring copies that one: about 100 ns
//             and 64 bytes.
// Limits      a call on a group with 256 others under way may be given as posted although it has ended.
// Fork        a child's archive has no calls of its parent.
#pragma once

#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/comm/trace/rank_trace.h"

namespace LOCKSTEP_PUBLIC lockstep {

class FlightRecorder;

class CallArchive {
 public:
  CallArchive();
  ~CallArchive();
  CallArchive(const CallArchive&) = delete;
  CallArchive& operator=(const CallArchive&) = delete;

  // One entry per group of a rank of this process (several where ranks are threads), records in the order of
  // the calls. Groups without a call are left out.
  std::vector<GroupTrace> groups() const;

  // ---- for FlightRecorder
  static void enter(const FlightRecorder& recorder);
  static void leave(const FlightRecorder& recorder) noexcept;
  static void keep(const FlightRecorder& recorder, const trace::Record& record) noexcept;
};

}  // namespace lockstep
