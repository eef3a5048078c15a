#include "lockstep/train/profiler.h"

#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/cuda.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <set>
#include <span>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/trace/call_archive.h"
#include "lockstep/job/job.h"
#include "lockstep/os/atomic_file.h"
#include "lockstep/os/process.h"
#include "lockstep/train/profiler_chrome_trace.h"

namespace lockstep {
namespace {

namespace kineto = torch::autograd::profiler;
namespace impl = torch::profiler::impl;

std::atomic<bool> is_taken = false;  // a profile exists

std::int64_t unix_nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::set<impl::ActivityType> activities_of(const ProfileOptions& options) {
  std::set<impl::ActivityType> activities;
  const bool has_cuda = torch::cuda::is_available();
  for (const ProfilerActivity activity : options.activities) {
    if (activity == ProfilerActivity::CUDA && !has_cuda) {
      throw InvalidArgument(
          "profile: ProfilerActivity::CUDA, but libtorch finds no CUDA device here; leave activities empty "
          "for all "
          "that a machine has");
    }
    activities.insert(activity == ProfilerActivity::CUDA ? impl::ActivityType::CUDA
                                                         : impl::ActivityType::CPU);
  }
  if (options.activities.empty()) {
    activities.insert(impl::ActivityType::CPU);
    if (has_cuda) activities.insert(impl::ActivityType::CUDA);
  }
  return activities;
}

ProfilerEvent event_of(const kineto::KinetoEvent& event) {
  constexpr int USER_ANNOTATION = 1;  // libkineto::ActivityType, from which Python makes is_user_annotation
  ProfilerEvent out;
  out.name = event.name();
  out.start_ns = static_cast<std::int64_t>(event.startNs());
  out.end_ns = static_cast<std::int64_t>(event.endNs());
  out.thread = event.startThreadId();
  out.resource = event.deviceResourceId();
  out.fwd_thread = event.fwdThreadId();
  out.sequence_nr = event.sequenceNr();
  out.is_async = event.isAsync() || event.startThreadId() != event.endThreadId();
  out.device_index = event.deviceIndex();
  if (out.name == "[memory]") {
    out.kind = ProfilerEvent::Kind::MEMORY;
    out.bytes = event.deviceType() == at::kCPU ? event.nBytes() : 0;
  } else if (event.deviceType() != at::kCPU) {
    out.kind = ProfilerEvent::Kind::DEVICE;
  } else if (event.activityType() == USER_ANNOTATION) {
    out.kind = ProfilerEvent::Kind::USER_ANNOTATION;
  }
  for (const auto& shape : event.shapes()) out.input_shapes.push_back(shape);
  return out;
}

// Gives the place to another profile when it ends.
class Place {
 public:
  Place() {
    if (is_taken.exchange(true)) {
      throw InvalidArgument(
          "profile: there is a profile in this process already, and libtorch's profiler takes one at a time: "
          "stop() the first before the second begins");
    }
    if (impl::ProfilerStateBase::get() == nullptr) return;
    is_taken = false;
    throw InvalidArgument(
        "profile: libtorch's profiler is in use on this thread already (enableProfiler or RecordProfile): "
        "end "
        "that first");
  }
  ~Place() { is_taken = false; }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
};

}  // namespace

// RUNNING --stop()--> ENDED. A failed start throws, and there is no object.
struct Profile::State {
  std::unique_ptr<Place> place;        // while RUNNING
  std::optional<CallArchive> archive;  // while RUNNING
  const std::thread::id thread = std::this_thread::get_id();
  ProfilerTrace trace;

  explicit State(const ProfileOptions& options) {
    if (options.with_stack) {
      throw InvalidArgument(
          "profile: with_stack is not supported: libtorch's profiler knows frames of Python and TorchScript, "
          "not of "
          "C++; name ranges with record_function instead");
    }
    const auto activities = activities_of(options);
    place = std::make_unique<Place>();
    archive.emplace();
    trace.start_ns = unix_nanoseconds();
    trace.steady_to_unix = trace.start_ns - CycleClock::steady_nanoseconds();
    trace.pid = current_pid();
    trace.profile_memory = options.profile_memory;
    note_rank();
    impl::ExperimentalConfig experimental;
    experimental.profile_all_threads = options.profile_all_threads;
    const impl::ProfilerConfig config(impl::ProfilerState::KINETO, options.record_shapes,
                                      options.profile_memory, false, false, false, experimental);
    kineto::prepareProfiler(config, activities);
    kineto::enableProfiler(config, activities);
  }

  void note_rank() {
    if (!is_initialized() || !world().is_member()) return;
    trace.rank = get_rank();
    trace.world_size = get_world_size();
    trace.backend = get_backend();
  }

  void stop() {
    const std::unique_ptr<Place> ends_here = std::move(place);
    trace.end_ns = unix_nanoseconds();
    trace.groups = archive->groups();
    archive.reset();
    const auto result = kineto::disableProfiler();
    if (trace.backend.empty()) note_rank();
    for (const kineto::KinetoEvent& event : result->events()) {
      if (!event.isHiddenEvent()) trace.events.push_back(event_of(event));
    }
  }
};

Profile::Profile(const ProfileOptions& options) : state_(std::make_unique<State>(options)) {}

Profile::~Profile() {
  if (!state_->place) return;
  if (state_->thread != std::this_thread::get_id()) {
    static_cast<void>(
        state_->place.release());  // libtorch's profiler cannot be ended from here, so it stays in use
    return;
  }
  try {
    state_->stop();
  } catch (const std::exception&) {  // the profile is lost, as it is without stop()
  }
}

void Profile::stop() {
  if (!state_->place) return;
  if (state_->thread != std::this_thread::get_id())
    throw InvalidArgument("profile: stop() on another thread than the profile began on; call it there");
  state_->stop();
}

const ProfilerTrace& Profile::trace() const {
  if (state_->place) throw InvalidArgument("profile: it has not ended; call stop() first");
  return state_->trace;
}

KeyAverages Profile::key_averages(bool group_by_input_shape) const {
  return lockstep::key_averages(trace(), group_by_input_shape);
}

std::string Profile::export_chrome_trace(const std::string& path) const {
  const std::string place = path_of_rank(path, trace().rank, trace().world_size);
  constexpr std::size_t AT_ONCE = 1 << 20;
  AtomicFile file(place, AtomicFile::Access::PRIVATE);
  std::string text;
  const auto flush = [&] {
    file.write(std::as_bytes(std::span(text)));
    text.clear();
  };
  write_chrome_trace(trace(), [&](std::string_view piece) {
    text += piece;
    if (text.size() >= AT_ONCE) flush();
  });
  flush();
  file.commit(false);
  return place;
}

RecordFunctionRange::RecordFunctionRange(std::string name) : range_(at::RecordScope::USER_SCOPE) {
  if (range_.isActive()) range_.before(std::move(name));
}

}  // namespace lockstep
