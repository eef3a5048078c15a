// Break: why a stream over Gloo has ended, and whether the process at its other end did it.
#pragma once

#include <exception>
#include <string>

namespace lockstep::gloo {

struct Break {
  std::string reason;
  bool by_peer = false;
};

// Gloo's exceptions have no code. Only their text tells whether the other process ended (Gloo's own words,
// and two of strerror's). The reason leaves out the place in Gloo's source: "[pair.cc:589] Connection closed
// by peer [127.0.0.1]:4711".
inline Break break_of(const std::exception& error) {
  const std::string text = error.what();
  for (const char* const known : {"Connection closed by peer", "Connection reset by peer", "Broken pipe"}) {
    if (text.find(known) != std::string::npos) return {known, true};
  }
  const std::size_t end = text.starts_with('[') ? text.find("] ") : std::string::npos;
  return {end == std::string::npos ? text : text.substr(end + 2), false};
}

}  // namespace lockstep::gloo
