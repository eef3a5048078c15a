#include "lockstep/named/cycles.h"

#include <algorithm>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/number_list.h"
#include "lockstep/base/running_clock.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/all_gather.h"
#include "lockstep/comm/collectives/barrier.h"

namespace lockstep::named {
namespace {

constexpr std::size_t FIXED_WORDS = 2;  // flags, bytes of requests

}  // namespace

Cycles::Cycles(const ProcessGroup& group, const Settings& settings)
    : sets_(group),
      settings_(settings),
      table_(group.size(), settings.cache_capacity),
      execution_(sets_, timeline_),
      stalls_(settings.stall_check, settings.stall_shutdown) {
  waiters_->bell = std::make_shared<Doorbell>(group);
  if (!settings.timeline.empty() && settings.timeline != "DYNAMIC" && group.rank() == 0)
    timeline_.start(settings.timeline, settings.timeline_marks_cycles);
}

void Cycles::leave() {
  leaves_.store(true);
  wake();
}

// Whatever ends the cycles becomes the failure of everything that is not complete.
void Cycles::run() noexcept {
  try {
    while (!inbox_.is_closed()) turn();
  } catch (const Error& error) {
    sets_.all().backend().abort(str("another rank's operations by name ended: ", error.what()), error.code(),
                                -1);
    inbox_.close(std::current_exception());
  } catch (...) {
    sets_.all().abort("another rank's operations by name ended");
    inbox_.close(std::current_exception());
  }
  timeline_.stop();
}

void Cycles::turn() {
  wait_for_a_reason();
  waiters_->bell->begin(cycle_++);
  timeline_.cycle(now());
  const Heard heard = exchange();
  for (const Batch& batch : fusion_plan(table_.take_ready(), settings_.fusion_threshold)) run_batch(batch);
  idle_cycles_ = heard.is_idle ? idle_cycles_ + 1 : 0;
  if (!heard.leaving.empty() || heard.is_stalled) end(heard);
}

void Cycles::wait_for_a_reason() {
  Doorbell& bell = *waiters_->bell;
  while (true) {
    const std::uint32_t heard = bell.rings();
    if (bell.is_begun(cycle_)) return;
    const auto longest = pause(now());
    if (longest.count() <= 0) return;
    bell.sleep(heard, longest);
  }
}

// How long this rank may sleep before it has a reason of its own for a cycle; 0: it has one now.
std::chrono::nanoseconds Cycles::pause(Time now) {
  constexpr std::chrono::seconds LONG{1};
  constexpr std::chrono::milliseconds CHECK_ALIVE{200};
  constexpr int SOON = 50;      // cycles without news, after which
  constexpr int MORE_REST = 5;  // cycle times pass between two
  look_for_stalls(now);
  if (leaves_.load() || sees_stall_) return {};
  std::chrono::nanoseconds longest = stalls_.patience().value_or(LONG);
  if (const auto oldest = inbox_.oldest_new()) {
    if (waiters_->count.load() > 0) return {};
    longest = std::min<std::chrono::nanoseconds>(longest, *oldest + settings_.cycle_time - now);
  } else if (inbox_.has_under_way()) {
    // A rank that has died wakes nobody. While names wait for other ranks, an exchange finds the dead.
    longest = std::min<std::chrono::nanoseconds>(longest, looked_ + CHECK_ALIVE - now);
  }
  if (waiters_->bell->is_shared() || sets_.all().size() == 1) return longest;
  // Nobody can wake this rank, so it joins the others by the clock.
  const auto often = std::max(settings_.cycle_time, std::chrono::microseconds(200));
  const auto rest = idle_cycles_ > SOON ? often * MORE_REST : often;
  return std::min<std::chrono::nanoseconds>(longest, looked_ + rest - now);
}

// The clock of rank 0 is that of all ranks.
void Cycles::look_for_stalls(Time now) {
  const auto patience = stalls_.patience();
  if (sets_.all().rank() != 0 || !patience || now - stalls_looked_ < *patience) return;
  stalls_looked_ = now;
  const Stalls found = stalls_.look(table_.incomplete(), now, running_time.last_end());
  if (!found.warning.empty()) log(LogLevel::WARNING, found.warning);
  sees_stall_ = found.is_over;
}

// A request that was announced in the same form before is one bit.
std::vector<std::uint64_t> Cycles::own_words(std::string& requests) {
  std::vector<std::uint64_t> words(FIXED_WORDS + (table_.slots() + 63) / 64);
  words[0] = (leaves_.load() ? LEAVES : NO_FLAG) | (sees_stall_ ? SEES_STALL : NO_FLAG);
  for (const auto& operation : inbox_.take_new()) {
    if (const Request& request = operation->request(); !table_.has_process_set(request.process_set)) {
      inbox_.end({operation}, std::make_exception_ptr(
                                  InvalidArgument(str(name_of(request.kind), " ", in_quotes(request.name),
                                                      ": its process set has been removed"))));
      continue;
    }
    const auto slot = table_.slot_of(sets_.all().rank(), operation->request(), operation->cached());
    if (slot) {
      words[FIXED_WORDS + *slot / 64] |= std::uint64_t{1} << (*slot % 64);
    } else {
      encode(operation->request(), requests);
    }
  }
  words[1] = requests.size();
  return words;
}

Cycles::Heard Cycles::exchange() {
  std::string requests;
  const std::vector<std::uint64_t> own = own_words(requests);
  const std::size_t length = own.size();
  const auto ranks = static_cast<std::size_t>(sets_.all().size());
  std::vector<std::uint64_t> words(length * ranks);
  comm::all_gather(sets_.all(), std::span<const std::uint64_t>(own), std::span(words));
  looked_ = now();
  Heard heard;
  for (std::size_t r = 0; r < ranks; ++r) {
    const std::span<const std::uint64_t> theirs(words.data() + r * length, length);
    if ((theirs[0] & LEAVES) != 0) heard.leaving.push_back(static_cast<int>(r));
    if ((theirs[0] & SEES_STALL) != 0) heard.is_stalled = true;
    if (std::any_of(theirs.begin(), theirs.end(), [](std::uint64_t word) { return word != 0; }))
      heard.is_idle = false;
  }
  hear_slots(words, length);
  exchange_requests(words, length, requests);
  return heard;
}

// What all ranks announce in one exchange, most names in most cycles, is complete at once.
void Cycles::hear_slots(std::span<const std::uint64_t> words, std::size_t length) {
  const auto each = [](std::uint64_t bits, std::size_t word, const auto& call) {
    for (; bits != 0; bits &= bits - 1)
      call((word - FIXED_WORDS) * 64 + static_cast<std::size_t>(__builtin_ctzll(bits)));
  };
  for (std::size_t w = FIXED_WORDS; w < length; ++w) {
    std::uint64_t common = words[w];
    for (std::size_t at = w; at < words.size(); at += length) common &= words[at];
    each(common, w, [&](std::size_t slot) { table_.announce_cached_by_all(slot, looked_); });
    for (std::size_t r = 0; r * length < words.size(); ++r) {
      each(words[r * length + w] & ~common, w,
           [&](std::size_t slot) { table_.announce_cached(static_cast<int>(r), slot, looked_); });
    }
  }
}

void Cycles::exchange_requests(const std::vector<std::uint64_t>& words, std::size_t length,
                               const std::string& own) {
  std::size_t bytes = 0;
  for (std::size_t at = 1; at < words.size(); at += length) bytes += words[at];
  if (bytes == 0) return;
  std::string all(bytes, '\0');
  std::vector<std::span<std::byte>> parts;
  auto rest = std::as_writable_bytes(std::span(all));
  for (std::size_t at = 1; at < words.size(); at += length) {
    parts.push_back(rest.first(words[at]));
    rest = rest.subspan(words[at]);
  }
  comm::all_gather(sets_.all(), own.data(), own.size(), DType::UINT8, parts);
  for (std::size_t r = 0; r < parts.size(); ++r) {
    for (auto& request : decode({reinterpret_cast<const char*>(parts[r].data()), parts[r].size()}))
      table_.announce(static_cast<int>(r), std::move(request), looked_);
  }
}

void Cycles::run_batch(const Batch& batch) {
  if (sets_.rank_in(batch.request().process_set) < 0) return;
  Operations operations = inbox_.find(batch.responses);
  for (const Response& response : batch.responses) {
    if (!timeline_.is_on()) break;
    const std::string phase = str("NEGOTIATE_", upper_case(name_of(response.request().kind)));
    timeline_.span(response.request().name, phase, response.since, looked_);
  }
  std::exception_ptr failure;
  if (const Response& first = batch.responses.front(); first.result == Response::Result::MISMATCH) {
    failure = std::make_exception_ptr(Mismatch(first.text));
  } else {
    try {
      carry_out(batch, operations);
    } catch (const InvalidArgument&) {
      failure = std::current_exception();  // the same on every rank, and before anything was sent
    }
  }
  std::erase(operations, nullptr);  // of a rank that has joined
  inbox_.end(operations, failure);
}

void Cycles::carry_out(const Batch& batch, const Operations& operations) {
  const Response& first = batch.responses.front();
  const auto& operation = operations.front();
  if (first.result == Response::Result::ALL_JOINED) {
    operation->own_result().number = first.last_joined;
    return;
  }
  const Kind kind = batch.request().kind;
  if (kind == Kind::ADD_PROCESS_SET || kind == Kind::REMOVE_PROCESS_SET)
    return change_process_sets(first, *operation);
  execution_.run(batch, operations);
}

void Cycles::change_process_sets(const Response& response, Operation& operation) {
  const Request& request = response.request();
  if (request.kind == Kind::ADD_PROCESS_SET) {
    const std::vector<int> ranks(request.shape.begin(), request.shape.end());
    const int id = sets_.add(ranks);
    table_.add_process_set(id, ranks);
    operation.own_result().number = id;
    return;
  }
  for (const Incomplete& one : table_.incomplete()) {
    if (one.request->process_set == request.root)
      throw InvalidArgument(str("remove_process_set ", request.root, ": ", describe({one})));
  }
  execution_.forget_process_set(request.root);
  table_.remove_process_set(request.root);
  sets_.remove(request.root);
}

void Cycles::end(const Heard& heard) {
  const std::string left = describe(table_.incomplete());
  const auto with_names = [&](const std::string& text) {
    return left.empty() ? text : str(text, "; not complete: ", left);
  };
  if (heard.is_stalled)
    return inbox_.close(
        std::make_exception_ptr(Timeout(with_names(str("stalled for HOROVOD_STALL_SHUTDOWN_TIME_SECONDS, ",
                                                       settings_.stall_shutdown.count() / 1000, " s")))));
  if (leaves_.load())
    return inbox_.close(std::make_exception_ptr(
        Aborted(with_names("this rank has called shutdown(); call init() to begin anew"))));
  inbox_.close(std::make_exception_ptr(
      PeerLost(with_names(str(rank_list(heard.leaving), heard.leaving.size() == 1 ? " has" : " have",
                              " called shutdown() or ended, so operations by name ended on every rank")),
               heard.leaving.front())));
}

}  // namespace lockstep::named
