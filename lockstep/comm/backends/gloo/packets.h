// The data on a line of Gloo (line.h): packets, each with a number of bytes and then the bytes. For the
// module alone.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace lockstep::gloo {

inline constexpr std::size_t PAYLOAD = (std::size_t{256} << 10U) + 64;  // the largest frame and its header
inline constexpr std::size_t PACKET = PAYLOAD + sizeof(std::uint64_t);
inline constexpr std::size_t SLOTS = 10;  // packets on their way to one rank
inline constexpr std::size_t KEPT = 2;    // of these, reserved for a question and an answer
// number of free packets at which the sender asks Gloo which packets have gone
inline constexpr std::size_t FEW = 4;
inline constexpr std::uint64_t DATA = 0;   // Gloo's slot number for packets
inline constexpr std::uint64_t WATCH = 1;  // Gloo's slot number to which no packet is ever sent
inline constexpr std::uint64_t HAVE_YOU_READ = ~std::uint64_t{0};  // stands in place of a number of bytes
inline constexpr std::uint64_t HAVE_READ = HAVE_YOU_READ - 1;

// A wait that times out breaks all connections of Gloo's context, so none has a timeout.
inline constexpr std::chrono::hours ENDLESS{24 * 365};

// Offsets of packets in the memory of a line: a ring of outgoing packets, then a ring of incoming ones.
constexpr std::size_t outgoing(std::uint64_t packet) { return packet % SLOTS * PACKET; }
constexpr std::size_t incoming(std::uint64_t packet) { return (SLOTS + packet % SLOTS) * PACKET; }
inline constexpr std::size_t MEMORY = 2 * SLOTS * PACKET;

}  // namespace lockstep::gloo
