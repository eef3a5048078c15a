#include "lockstep/comm/trace/trace_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/trace/trace_memory.h"
#include "lockstep/os/atomic_file.h"
#include "lockstep/os/foreign_memory.h"
#include "lockstep/os/plain_file.h"
#include "lockstep/os/private_folder.h"

namespace lockstep {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int FORMAT = 1;

OrderedJson json_of(const TraceRecord& record) {
  const Call& call = record.call;
  return {{"number", record.number},
          {"sequence", record.sequence},
          {"verb", name_of(call.verb)},
          {"dtype", name_of(call.dtype)},
          {"op", name_of(call.op)},
          {"purpose", name_of(call.purpose)},
          {"root", call.root},
          {"tag", record.tag},
          {"count", call.count},
          {"bytes", call.count * size_of(call.dtype)},
          {"state", name_of(record.state)},
          {"start_ns", record.start_ns},
          {"end_ns", record.end_ns}};
}

std::string text_of(const OrderedJson& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/false, OrderedJson::error_handler_t::replace);
}

// Returns `whole` with one more field, the list `parts`, each on a line of its own.
std::string with_list(const OrderedJson& whole, const char* field, const std::vector<std::string>& parts) {
  std::string text = text_of(whole);
  text.pop_back();
  text += str(",\"", field, "\":[");
  for (std::size_t i = 0; i < parts.size(); ++i) text += (i == 0 ? "\n" : ",\n") + parts[i];
  return text + "]}";
}

std::string text_of(const GroupTrace& group) {
  std::vector<std::string> records;
  for (const TraceRecord& record : group.records) records.push_back(text_of(json_of(record)));
  return with_list({{"name", group.name},
                    {"backend", group.backend},
                    {"rank", group.rank},
                    {"members", group.members},
                    {"closed", group.is_closed},
                    {"failure", group.failure},
                    {"calls", group.calls}},
                   "records", records);
}

std::string text_of(const RankTrace& trace) {
  std::vector<std::string> groups;
  for (const GroupTrace& group : trace.groups) groups.push_back(text_of(group));
  return with_list({{"rank", trace.rank},
                    {"size", trace.size},
                    {"pid", trace.pid},
                    {"program", trace.program},
                    {"host", trace.host},
                    {"job", trace.job},
                    {"world", trace.world},
                    {"process", std::string(1, trace.process)},
                    {"read_at", trace.read_at},
                    {"read_ns", trace.read_ns},
                    {"joining_ns", trace.joining_ns}},
                   "groups", groups);
}

template <typename Enum> Enum parse_name(const OrderedJson& value, int count) {
  const auto name = value.get<std::string>();
  for (int i = 0; i < count; ++i) {
    if (name == name_of(static_cast<Enum>(i))) return static_cast<Enum>(i);
  }
  throw FormatError("\"" + printable(name) + "\" is not a name that this version knows");
}

TraceRecord record_of(const OrderedJson& json) {
  TraceRecord record;
  record.number = json.at("number");
  record.sequence = json.at("sequence");
  record.call = {.verb = parse_name<Verb>(json.at("verb"), VERB_COUNT),
                 .dtype = parse_name<DType>(json.at("dtype"), DTYPE_COUNT),
                 .op = parse_name<ReduceOp>(json.at("op"), REDUCE_OP_COUNT),
                 .purpose = json.contains("purpose") ? parse_name<Purpose>(json.at("purpose"), PURPOSE_COUNT)
                                                     : Purpose::PROGRAM,
                 .root = json.at("root"),
                 .count = json.at("count")};
  record.tag = json.at("tag");
  constexpr int STATES = 3;
  record.state = parse_name<CallState>(json.at("state"), STATES);
  record.start_ns = json.at("start_ns");
  record.end_ns = json.at("end_ns");
  return record;
}

GroupTrace group_of(const OrderedJson& json) {
  GroupTrace group;
  group.name = printable(json.at("name").get<std::string>());
  group.backend = printable(json.at("backend").get<std::string>());
  group.rank = json.at("rank");
  group.members = json.at("members").get<std::vector<int>>();
  group.is_closed = json.at("closed");
  group.failure = printable(json.at("failure").get<std::string>(), sizeof(trace::RingHeader::failure));
  group.calls = json.at("calls");
  for (const OrderedJson& record : json.at("records")) group.records.push_back(record_of(record));
  const auto members = static_cast<int>(group.members.size());
  if (group.rank < 0 || group.rank >= members) throw FormatError("a rank that its group does not have");
  return group;
}

RankTrace rank_of(const OrderedJson& json) {
  constexpr int MAX_WORLD = 1 << 20;
  RankTrace trace;
  trace.rank = json.at("rank");
  trace.size = json.at("size");
  if (trace.size < 1 || trace.size > MAX_WORLD || trace.rank < 0 || trace.rank >= trace.size)
    throw FormatError("a rank that its job does not have");
  trace.pid = json.at("pid");
  trace.program = printable(json.value("program", std::string()));  // files of earlier versions have no name
  trace.joining_ns = json.value("joining_ns", std::int64_t{0});
  trace.host = printable(json.at("host").get<std::string>());
  trace.job = printable(json.at("job").get<std::string>());
  trace.world = json.at("world");
  const auto process = json.at("process").get<std::string>();
  trace.process = process.size() == 1 && process[0] > ' ' && process[0] < '\x7f' ? process[0] : '?';
  trace.read_at = printable(json.at("read_at").get<std::string>());
  trace.read_ns = json.at("read_ns");
  for (const OrderedJson& group : json.at("groups")) trace.groups.push_back(group_of(group));
  return trace;
}

// Returns this rank's trace and those of other ranks whose memory it holds.
std::vector<RankTrace> traces_within_reach(const TraceMemory& memory) {
  std::vector<RankTrace> traces;
  if (auto own = read_trace(memory.bytes())) traces.push_back(std::move(*own));
  for (const Fd& file : memory.others()) {
    const ForeignMemory other(file.get());
    if (auto trace = read_trace(other.bytes())) traces.push_back(std::move(*trace));
  }
  std::sort(traces.begin(), traces.end(),
            [](const RankTrace& a, const RankTrace& b) { return a.rank < b.rank; });
  return traces;
}

}  // namespace

std::string trace_text(const std::vector<RankTrace>& traces) {
  std::vector<std::string> ranks;
  for (const RankTrace& trace : traces) ranks.push_back(text_of(trace));
  return with_list({{"lockstep_trace", FORMAT}}, "ranks", ranks) + "\n";
}

std::vector<RankTrace> parse_trace(std::string_view text, const std::string& path) {
  try {
    const OrderedJson json = OrderedJson::parse(text);
    if (json.at("lockstep_trace") != FORMAT) throw FormatError("it is of another version");
    std::vector<RankTrace> traces;
    for (const OrderedJson& rank : json.at("ranks")) traces.push_back(rank_of(rank));
    return traces;
  } catch (const OrderedJson::exception& error) {
    throw FormatError(str('"', printable(path), "\" is not a trace file: ", printable(error.what())));
  } catch (const FormatError& error) {
    throw FormatError(str('"', printable(path), "\" is not a trace file: ", error.what()));
  }
}

void write_trace(const std::string& path, const std::vector<RankTrace>& traces) {
  const std::string text = trace_text(traces);
  AtomicFile file(path, AtomicFile::Access::PRIVATE);
  file.write(std::as_bytes(std::span(text)));
  // not durable: a launcher soon kills a rank that fails, and a busy disk may need seconds
  file.commit(/*durable=*/false);
}

std::vector<RankTrace> read_trace_file(const std::string& path) {
  return parse_trace(read_plain_file(path), path);
}

std::string write_failure_trace(const TraceMemory& memory) {
  const auto folder = env("LOCKSTEP_TRACE_DIR");
  if (!folder) return {};
  try {
    make_private_folders(*folder);
    const std::vector<RankTrace> traces = traces_within_reach(memory);
    const auto own = read_trace(memory.bytes());
    const std::string again = own && own->world > 1 ? str("-world", own->world) : "";
    const std::string path =
        own ? str(*folder, "/rank", own->rank, "-pid", own->pid, again, ".json") : *folder + "/rank.json";
    write_trace(path, traces);
    return str("; what every rank did last: lockstep trace analyze ", printable(path));
  } catch (const std::exception& error) {
    return str("; no trace could be written: ", error.what());
  }
}

}  // namespace lockstep
