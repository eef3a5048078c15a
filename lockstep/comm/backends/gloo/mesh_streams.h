// MeshStreams: implements the streams of gloo/module.h over unbound buffers of Gloo, with a line (line.h) to
// each other rank.
//
//   receiver (thread)   connects, then calls waitRecv in a loop and counts packets that arrive (receiver.h)
//   sender (thread)     calls waitSend when few packets are free, and counts sent packets (sender.h)
#pragma once

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/backends/gloo/bell.h"
#include "lockstep/comm/backends/gloo/line.h"
#include "lockstep/comm/backends/gloo/module.h"
#include "lockstep/comm/backends/gloo/receiver.h"
#include "lockstep/comm/backends/gloo/sender.h"

namespace lockstep::gloo {

// Copies as much of `text` as fits.
void put(const std::string& text, Text& into);

class MeshStreams final : public Streams {
 public:
  MeshStreams(const Place& place, const std::shared_ptr<::gloo::transport::Device>& device);
  ~MeshStreams() override;

  std::span<const char> address_for(int member) const override { return at(member).line.address(); }
  void connect(int with, std::span<const char> address) override;
  int wait_connected(TimePoint deadline, Text& error) override;

  Moved send(int to, const std::array<std::span<const std::byte>, 2>& parts) override {
    return at(to).sender.send(parts);
  }
  Moved receive(int from, std::span<std::byte> buffer) override { return at(from).receiver.receive(buffer); }
  bool flushed(int to) override { return at(to).sender.flushed(); }
  void want_write(int to, bool wanted) override { at(to).sender.want_write(wanted); }
  void close(int with) override;
  std::size_t wait(std::span<Ready> ready, TimePoint deadline) override;
  void wake() override;

 private:
  struct Member {
    Member(int rank, ::gloo::transport::Context& context, Bell& bell) : line(rank, context, bell) {}
    Line line;
    Sender sender{line};
    Receiver receiver{line, sender};
  };

  Member& at(int member) const { return *members_.at(static_cast<std::size_t>(member)); }
  std::size_t collect(std::span<Ready> ready) const;

  // Declared before the members, because their buffers must be destroyed first.
  const std::shared_ptr<::gloo::transport::Context> context_;
  Bell bell_;
  std::vector<std::unique_ptr<Member>> members_;  // by rank; null for this rank
  bool woken_ = false;                            // guarded by the bell's lock
};

}  // namespace lockstep::gloo
