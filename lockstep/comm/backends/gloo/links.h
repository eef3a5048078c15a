// GlooLinks: links over the streams of Gloo's module (gloo/module.h).
//
//   GlooLinks links(std::move(streams), my_rank, size);         // all connected
#pragma once

#include "lockstep/comm/backends/gloo/module.h"
#include "lockstep/comm/backends/messages/link.h"

namespace lockstep::gloo {

class GlooLinks final : public messages::Links {
 public:
  GlooLinks(std::unique_ptr<Streams> streams, int own, int size)
      : streams_(std::move(streams)), own_(own), size_(size) {}

  std::unique_ptr<messages::Link> link_to(int peer) override;
  std::vector<Event> wait(Deadline deadline, bool eager) override;
  void wake() override { streams_->wake(); }

 private:
  const std::unique_ptr<Streams> streams_;
  const int own_;
  const int size_;
};

}  // namespace lockstep::gloo
