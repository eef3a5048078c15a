// CallArchive: every call that this process makes on any of its groups during a span of time. It also has
// calls that the rings of the flight recorders no longer hold, and calls on groups that are gone by then. For
// the profiler.
//
//   CallArchive archive;                                        // from here ...
//   ...
//   for (const GroupTrace& group : archive.groups()) ...        // ... to here: calls that were under way at
//                                                               // some time of it
//
// Who         One archive at a time in a process; another one throws InvalidArgument. Any thread.
// Cost        While there is an archive, a call that overwrites another in its ring copies that one first:
//             about 100 ns and 64 bytes.
// Limits      With 256 later calls under way on a group, a call may be given as posted although it has ended.
// Fork        A child's archive has no calls of its parent.
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

  // Returns one entry per group of a rank of this process (several where ranks are threads), with records in
  // the order of the calls. Groups without a call are left out.
  std::vector<GroupTrace> groups() const;

  // ---- called by FlightRecorder
  static void enter(const FlightRecorder& recorder);
  static void leave(const FlightRecorder& recorder) noexcept;
  static void keep(const FlightRecorder& recorder, const trace::Record& record) noexcept;
};

}  // namespace lockstep
