// GlooLinks: links over the streams of Gloo's module (gloo_module.h).
//
//   GlooLinks links(std::move(streams), my_rank, size);         // all connected
#pragma once

#include "lockstep/comm/backends/gloo_module.h"
#include "lockstep/comm/backends/link.h"

namespace lockstep::tcp {

class GlooLinks final : public Links {
 public:
  GlooLinks(std::unique_ptr<gloo::Streams> streams, int own, int size)
      : streams_(std::move(streams)), own_(own), size_(size) {}

  std::unique_ptr<Link> link_to(int peer) override;
  std::vector<Event> wait(Deadline deadline, bool eager) override;
  void wake() override { streams_->wake(); }

 private:
  const std::unique_ptr<gloo::Streams> streams_;
  const int own_;
  const int size_;
};

}  // namespace lockstep::tcp
