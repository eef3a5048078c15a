// What goes over a line of Gloo (line.h): packets of a number of bytes and the bytes. For the module alone.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace lockstep::gloo {

inline constexpr std::size_t PAYLOAD = (std::size_t{256} << 10U) + 64;  // the largest frame and its header
inline constexpr std::size_t PACKET = PAYLOAD + sizeof(std::uint64_t);
inline constexpr std::size_t SLOTS = 10;   // packets on their way to one rank,
inline constexpr std::size_t KEPT = 2;     // of which as many are a question and an answer
inline constexpr std::size_t FEW = 4;      // free ones, when it is time to ask which have gone
inline constexpr std::uint64_t DATA = 0;   // what a packet and its receiver call each other, and
inline constexpr std::uint64_t WATCH = 1;  // what no packet is called
inline constexpr std::uint64_t HAVE_YOU_READ = ~std::uint64_t{0};  // instead of a number of bytes
inline constexpr std::uint64_t HAVE_READ = HAVE_YOU_READ - 1;

// A wait that times out breaks all connections of Gloo's context, so none has a timeout.
inline constexpr std::chrono::hours ENDLESS{24 * 365};

// Where a packet lies in the memory of its line: a ring of packets that go out, and a ring of packets that
// come in.
constexpr std::size_t outgoing(std::uint64_t packet) { return packet % SLOTS * PACKET; }
constexpr std::size_t incoming(std::uint64_t packet) { return (SLOTS + packet % SLOTS) * PACKET; }
inline constexpr std::size_t MEMORY = 2 * SLOTS * PACKET;

}  // namespace lockstep::gloo
