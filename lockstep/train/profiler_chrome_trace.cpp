#include "lockstep/train/profiler_chrome_trace.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/base/str.h"

namespace lockstep {
namespace {

using nlohmann::json;
using Kind = ProfilerEvent::Kind;

constexpr std::int64_t FIRST_LANE = 1 << 30;  // above every thread's number
constexpr std::int64_t BASE = std::int64_t{1}
                              << 52U;  // in ns: microseconds with three digits are exact in a double

class ChromeTrace {
 public:
  ChromeTrace(const ProfilerTrace& trace, const std::function<void(std::string_view)>& write)
      : trace_(trace), write_(write), base_(trace.start_ns / BASE * BASE) {}

  void write() {
    const json information = {
        {"backend", trace_.backend}, {"rank", trace_.rank}, {"world_size", trace_.world_size}};
    write_(str("{\"schemaVersion\": 1, \"distributedInfo\": ", information.dump(),
               ", \"displayTimeUnit\": \"ms\", \"baseTimeNanoseconds\": ", base_, ", \"traceEvents\": ["));
    name("process_name", 0, str("rank ", trace_.rank, " of ", trace_.world_size));
    threads();
    for (const ProfilerEvent& event : trace_.events) put(event);
    for (const GroupTrace& group : trace_.groups) put(group);
    write_("\n]}\n");
  }

 private:
  double microseconds(std::int64_t nanoseconds) const { return static_cast<double>(nanoseconds) / 1e3; }

  void put(const json& event) {
    write_(is_first_ ? "\n" : ",\n");
    is_first_ = false;
    write_(event.dump(-1, ' ', false, json::error_handler_t::replace));
  }

  void name(const char* what, std::int64_t tid, const std::string& text) {
    put({{"ph", "M"}, {"name", what}, {"pid", trace_.pid}, {"tid", tid}, {"args", {{"name", text}}}});
  }

  void threads() {
    std::set<std::int64_t> seen;
    for (const ProfilerEvent& event : trace_.events) {
      if (event.kind != Kind::DEVICE && seen.insert(event.resource).second)
        name("thread_name", event.resource, str("thread ", event.resource));
    }
  }

  void put(const ProfilerEvent& event) {
    json args = json::object();
    json out = {{"name", event.name}, {"tid", event.resource}, {"ts", microseconds(event.start_ns - base_)}};
    out["pid"] = event.kind == Kind::DEVICE ? static_cast<long>(event.device_index) : trace_.pid;
    if (event.kind == Kind::MEMORY) {
      out.update({{"ph", "i"}, {"s", "t"}, {"cat", "cpu_instant_event"}});
      args["Bytes"] = event.bytes;
    } else {
      out.update({{"ph", "X"}, {"dur", microseconds(event.end_ns - event.start_ns)}});
      out["cat"] = event.kind == Kind::USER_ANNOTATION ? "user_annotation"
                   : event.kind == Kind::DEVICE        ? "kernel"
                                                       : "cpu_op";
      if (event.sequence_nr >= 0) args["Sequence number"] = event.sequence_nr;
      if (event.fwd_thread != 0) args["Fwd thread id"] = event.fwd_thread;
      if (!event.input_shapes.empty()) args["Input Dims"] = event.input_shapes;
    }
    out["args"] = std::move(args);
    put(out);
  }

  // Calls of a group may overlap, but events of a track must not. So a call goes to the first free track of
  // the group.
  void put(const GroupTrace& group) {
    const std::int64_t first = next_lane_;
    std::vector<std::int64_t> free_at;
    for (const TraceRecord& record : group.records) {
      const std::int64_t end =
          record.state == CallState::POSTED ? trace_.end_ns - trace_.steady_to_unix : record.end_ns;
      const auto lane = std::find_if(free_at.begin(), free_at.end(),
                                     [&](std::int64_t since) { return since <= record.start_ns; });
      const std::int64_t tid = first + (lane - free_at.begin());
      if (lane == free_at.end()) {
        free_at.push_back(end);
        name("thread_name", tid, str("lockstep ", group.name, " (", group.backend, ")"));
      } else {
        *lane = end;
      }
      put(group, record, tid, end);
    }
    next_lane_ += static_cast<std::int64_t>(free_at.size());
  }

  void put(const GroupTrace& group, const TraceRecord& record, std::int64_t tid, std::int64_t end) {
    const Call& call = record.call;
    const bool is_message = call.verb == Verb::SEND || call.verb == Verb::RECV;
    json args = {{"group", group.name},
                 {"backend", group.backend},
                 {"rank", group.rank},
                 {"call", describe(call)},
                 {"purpose", name_of(call.purpose)},
                 {"bytes", call.count * size_of(call.dtype)},
                 {"state", name_of(record.state)}};
    if (is_message) args.update({{"peer", call.root}, {"tag", record.tag}});
    if (!is_message) args["sequence"] = record.sequence;
    put({{"ph", "X"},
         {"cat", "lockstep"},
         {"name", str("lockstep:", name_of(call.verb))},
         {"pid", trace_.pid},
         {"tid", tid},
         {"ts", microseconds(record.start_ns + trace_.steady_to_unix - base_)},
         {"dur", microseconds(std::max<std::int64_t>(end - record.start_ns, 0))},
         {"args", std::move(args)}});
  }

  const ProfilerTrace& trace_;
  const std::function<void(std::string_view)>& write_;
  const std::int64_t base_;
  bool is_first_ = true;
  std::int64_t next_lane_ = FIRST_LANE;
};

}  // namespace

void write_chrome_trace(const ProfilerTrace& trace, const std::function<void(std::string_view)>& write) {
  ChromeTrace(trace, write).write();
}

std::string path_of_rank(const std::string& path, int rank, int world_size) {
  constexpr std::string_view PLACE = "{rank}";
  std::string text = path;
  std::size_t at = text.find(PLACE);
  if (at == std::string::npos && world_size == 1) return path;
  if (at == std::string::npos) {
    const std::filesystem::path file(path);
    return (file.parent_path() / str(file.stem().string(), "_rank_", rank, file.extension().string()))
        .string();
  }
  for (; at != std::string::npos; at = text.find(PLACE, at))
    text.replace(at, PLACE.size(), std::to_string(rank));
  return text;
}

}  // namespace lockstep
