#include "lockstep/job/spawn_child.h"

#include <cxxabi.h>

#include <charconv>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <typeinfo>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/os/pipe.h"
#include "lockstep/os/process.h"
#include "lockstep/os/unix_socket.h"

namespace lockstep {
namespace {

// Fits into an empty pipe, so the rank need not wait for its parent.
constexpr std::size_t LONGEST_TEXT = 16384;
bool is_in_fn = false;

void tell(int report, std::string_view bytes) {
  while (!bytes.empty()) {
    const long put = write_available(report, bytes);
    if (put < 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
}

std::string type_name(const std::exception& error) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(typeid(error).name(), nullptr, nullptr, &status), &std::free);
  return status == 0 ? name.get() : typeid(error).name();
}

// "E6:lockstep::Mismatch: ..."
std::string failure(const std::exception& error) {
  const auto* ours = dynamic_cast<const Error*>(&error);
  const auto code = static_cast<unsigned>(ours != nullptr ? ours->code() : ErrorCode::NONE);
  return str(SPAWN_FAILED, code, ':', type_name(error), ": ", error.what()).substr(0, LONGEST_TEXT);
}

// Takes the next number of `text`, and the comma behind it.
template <typename Number> bool take(std::string_view& text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data() + text.size() || *end != ',') return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()) + 1);
  return true;
}

}  // namespace

std::string SpawnCall::text() const { return str(number, ',', ranks, ',', parent, ',', report, ',', place); }

std::optional<SpawnCall> spawned_for() {
  const auto value = env("LOCKSTEP_SPAWN");
  if (!value) return std::nullopt;
  std::string_view text = *value;
  SpawnCall call;
  if (!take(text, call.number) || !take(text, call.ranks) || !take(text, call.parent) ||
      !take(text, call.report)) {
    throw InvalidArgument("environment: LOCKSTEP_SPAWN=\"" + printable(*value) +
                          "\" was not set by spawn(); unset it");
  }
  // Programs that a rank starts inherit the variable, but they are not the rank.
  if (call.parent != parent_pid()) return std::nullopt;
  call.place = text;
  return call;
}

void replay(const SpawnCall& wanted, const SpawnCall& here, const std::function<void(int rank)>& fn) {
  if (is_in_fn) {
    throw InvalidArgument(
        "spawn: this process is itself a rank of a spawn(), and such a rank cannot spawn; start all ranks "
        "with one call");
  }
  if (here.number < wanted.number) return;
  if (here.place != wanted.place || here.ranks != wanted.ranks) {
    tell(wanted.report, str(SPAWN_LOST, "its main came to spawn(", here.ranks, ") at ", here.place,
                            " instead of spawn(", wanted.ranks, ") at ", wanted.place));
    end_process(1);
  }
  set_close_on_exec(wanted.report);
  tell(wanted.report, std::string_view(&SPAWN_REACHED, 1));
  is_in_fn = true;
  try {
    fn(job_environment().rank);
  } catch (const std::exception& error) {
    tell(wanted.report, failure(error));
    end_process(1);
  } catch (...) {
    tell(wanted.report, str(SPAWN_FAILED, "0:an exception that is not a std::exception"));
    end_process(1);
  }
  end_process(0);
}

}  // namespace lockstep
