#include "cli/report/profile_input.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::cli {
namespace {

using EventJson = nlohmann::json;

constexpr std::string_view CALL_PREFIX = "lockstep:";
constexpr int EVENT_DEPTH = 2;  // depth of an event's object: in the list of events, in the whole

class ProfileParser {
 public:
  RankProfile parse(std::string_view text, const std::string& path) {
    profile_.path = path;
    const EventJson rest = EventJson::parse(
        text.begin(), text.end(),
        [this](int depth, auto event, EventJson& value) { return keep(depth, event, value); });
    if (!rest.at("traceEvents").is_array()) throw FormatError("its traceEvents are no list");
    const EventJson& information = rest.at("distributedInfo");
    profile_.rank = information.at("rank");
    profile_.world_size = information.value("world_size", 1);
    finish(rest.value("baseTimeNanoseconds", std::int64_t{0}));
    return std::move(profile_);
  }

 private:
  bool keep(int depth, EventJson::parse_event_t event, EventJson& value) {
    if (event == EventJson::parse_event_t::key && depth == 1) is_in_events_ = value == "traceEvents";
    if (!is_in_events_ || depth != EVENT_DEPTH || event != EventJson::parse_event_t::object_end) return true;
    use(value);
    return false;
  }

  void use(const EventJson& event) {
    if (event.value("ph", "") != "X") return;
    const std::string category = event.value("cat", "");
    const Span time = time_of(event);
    const EventJson args = event.value("args", EventJson::object());
    if (category == "cpu_op") {
      profile_.operations.push_back(time);
      if (args.value("Fwd thread id", std::uint64_t{0}) != 0) profile_.backward.push_back(time);
    } else if (category == "user_annotation") {
      const std::string name = event.at("name");
      if (name == "step" || name.starts_with("ProfilerStep#")) profile_.steps.push_back(time);
    } else if (category == "lockstep") {
      use_call(event.at("name").get<std::string>(), args, time);
    }
  }

  void use_call(const std::string& name, const EventJson& args, const Span& time) {
    profile_.in_flight.push_back(time);
    if (!args.contains("sequence")) return;  // a message
    const std::size_t verb = name.starts_with(CALL_PREFIX) ? CALL_PREFIX.size() : 0;
    profile_.calls.push_back({.verb = name.substr(verb),
                              .group = args.value("group", ""),
                              .rank = args.value("rank", 0),
                              .sequence = args.at("sequence"),
                              .bytes = args.value("bytes", std::uint64_t{0}),
                              .is_bucket = args.value("purpose", "") == "gradients",
                              .time = time});
  }

  static Span time_of(const EventJson& event) {
    constexpr double LONGEST = 4e15;  // of microseconds: nanoseconds fit
    const double start = event.at("ts");
    const double length = event.value("dur", 0.0);
    if (!(std::abs(start) < LONGEST && length >= 0 && length < LONGEST))
      throw FormatError("an event at no time");
    const std::int64_t from = std::llround(start * 1e3);
    return {from, from + std::llround(length * 1e3)};
  }

  void finish(std::int64_t base) {
    for (std::vector<Span>* spans :
         {&profile_.steps, &profile_.operations, &profile_.backward, &profile_.in_flight}) {
      for (Span& span : *spans) span = {span.start + base, span.end + base};
    }
    for (ReportCall& call : profile_.calls) call.time = {call.time.start + base, call.time.end + base};
    std::sort(profile_.steps.begin(), profile_.steps.end(),
              [](const Span& a, const Span& b) { return a.start < b.start; });
    profile_.operations = merged(std::move(profile_.operations));
    profile_.backward = merged(std::move(profile_.backward));
    profile_.in_flight = merged(std::move(profile_.in_flight));
  }

  RankProfile profile_;
  bool is_in_events_ = false;
};

}  // namespace

StepParts parts_of(const RankProfile& profile, const Span& step) {
  StepParts parts;
  const std::int64_t operations = length_within(profile.operations, step);
  parts.backward = length_within(profile.backward, step);
  parts.operations = operations - parts.backward;
  const Spans exposed = without(within(profile.in_flight, step), within(profile.operations, step));
  parts.communication = length_within(exposed, step);
  parts.rest = step.end - step.start - operations - parts.communication;
  return parts;
}

StepParts mean_parts(const RankProfile& profile) {
  constexpr std::size_t FEW = 3;
  const std::size_t first = profile.steps.size() < FEW ? 0 : 1;
  const auto count = static_cast<std::int64_t>(profile.steps.size() - first);
  StepParts sum;
  for (std::size_t i = first; i < profile.steps.size(); ++i) {
    const StepParts parts = parts_of(profile, profile.steps[i]);
    sum.backward += parts.backward;
    sum.operations += parts.operations;
    sum.communication += parts.communication;
    sum.rest += parts.rest;
  }
  if (count == 0) return sum;
  return {sum.backward / count, sum.operations / count, sum.communication / count, sum.rest / count};
}

RankProfile parse_profile(std::string_view text, const std::string& path) {
  try {
    return ProfileParser().parse(text, path);
  } catch (const EventJson::exception& error) {
    throw FormatError(str(in_quotes(path), " is not a profiler trace: ", printable(error.what())));
  } catch (const FormatError& error) {
    throw FormatError(str(in_quotes(path), " is not a profiler trace: ", error.what()));
  }
}

}  // namespace lockstep::cli
