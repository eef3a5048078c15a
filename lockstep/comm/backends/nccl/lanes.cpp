#include "lockstep/comm/backends/nccl/lanes.h"

#include <atomic>
#include <thread>
#include <utility>

namespace lockstep::nccl {

Lanes::Lanes(DeviceStreams& streams, int device, Communicators communicators)
    : streams_(&streams), communicators_(std::move(communicators)), main_(streams.make_stream(device)) {
  if (communicators_[static_cast<std::size_t>(Level::ACROSS)]) across_ = streams.make_stream(device);
}

// The stages of a segment may be in two streams. The last stage is in the main stream.
void Lanes::launch(const std::vector<Stage>& stages, const Patience& patience) {
  std::vector<DeviceStreams::Event> ends;  // end of the latest stage, by segment
  for (const Stage& stage : stages) {
    if (ends.size() <= stage.segment) ends.resize(stage.segment + 1);
    const DeviceStreams::Stream& stream = stage.level == Level::ACROSS ? across_ : main_;
    DeviceStreams::Event& before = ends[stage.segment];
    if (before) streams_->wait(stream, before);
    communicators_[static_cast<std::size_t>(stage.level)]->launch(stage.steps,
                                                                  streams_->native_handle(stream), patience);
    if (across_) before = streams_->record(stream);
  }
}

void Lanes::check() {
  for (const auto& communicator : communicators_) {
    if (communicator) communicator->check();
  }
}

bool Lanes::end(const std::vector<Lanes*>& all, End how) {
  std::atomic<bool> have_ended = true;
  {
    std::vector<std::jthread> threads;
    for (const Lanes* const each : all) {
      for (const auto& communicator : each->communicators_) {
        if (!communicator) continue;
        threads.emplace_back([&communicator, &have_ended, how] {
          if (!(how == End::ABORT ? communicator->abort() : communicator->finish())) have_ended = false;
        });
      }
    }
  }
  return have_ended;
}

}  // namespace lockstep::nccl
