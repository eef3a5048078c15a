#include "lockstep/named/timeline.h"

#include <cctype>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"

namespace lockstep::named {
namespace {

using Json = nlohmann::json;

constexpr auto SAFE = Json::error_handler_t::replace;  // names need not be UTF-8

std::int64_t microseconds(std::chrono::steady_clock::duration span) {
  return std::chrono::duration_cast<std::chrono::microseconds>(span).count();
}

}  // namespace

std::string upper_case(std::string_view word) {
  std::string upper(word);
  for (char& letter : upper) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  return upper;
}

void Timeline::start(const std::string& path, bool marks_cycles) {
  const std::lock_guard lock(mutex_);
  file_.emplace(path, 0, "timeline: ");
  text_ = "[\n";
  rows_.clear();
  begun_ = written_ = now();
  marks_cycles_ = marks_cycles;
}

bool Timeline::is_on() {
  const std::lock_guard lock(mutex_);
  return file_.has_value();
}

void Timeline::stop() {
  const std::lock_guard lock(mutex_);
  if (!file_) return;
  text_ += "{}]\n";
  write();
  file_.reset();
}

void Timeline::span(const std::string& name, std::string_view phase, Time begin, Time end) {
  const std::lock_guard lock(mutex_);
  if (!file_) return;
  const Json event = {{"ph", "X"},
                      {"name", std::string(phase)},
                      {"ts", microseconds(begin - begun_)},
                      {"dur", microseconds(end - begin)},
                      {"pid", row_of(name)}};
  add(event.dump(-1, ' ', false, SAFE));
}

void Timeline::cycle(Time begin) {
  const std::lock_guard lock(mutex_);
  if (!file_ || !marks_cycles_) return;
  const Json event = {
      {"ph", "i"}, {"name", "CYCLE_START"}, {"ts", microseconds(begin - begun_)}, {"pid", 0}, {"s", "g"}};
  add(event.dump());
}

// A new row begins with its name.
int Timeline::row_of(const std::string& name) {
  const auto [found, is_new] = rows_.try_emplace(name, static_cast<int>(rows_.size()) + 1);
  if (is_new) {
    const Json event = {
        {"ph", "M"}, {"name", "process_name"}, {"pid", found->second}, {"args", {{"name", name}}}};
    add(event.dump(-1, ' ', false, SAFE));
  }
  return found->second;
}

void Timeline::add(const std::string& event) {
  constexpr std::size_t MOST_BYTES = 1 << 20;
  constexpr std::chrono::seconds OFTEN{2};
  text_ += event;
  text_ += ",\n";
  const Time at = now();
  if (text_.size() > MOST_BYTES || at - written_ > OFTEN) write();
}

void Timeline::write() {
  written_ = now();
  if (!file_) return;
  try {
    file_->append(text_);
  } catch (const Error& error) {
    log(LogLevel::WARNING, str("the timeline ends here: ", error.what()));
    file_.reset();
  }
  text_.clear();
}

}  // namespace lockstep::named
