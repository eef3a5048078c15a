// What bench/collectives.cpp and its peers in bench/peers/ time, and how: the same for all of them.
//
//   struct Ours {
//     int rank(); int size(); void barrier(); void maxima(std::vector<double>&);
//     void call(Case, input, output);
//   };
//   time_collectives(ours, "private", every_case(), buffers);
//
// Every call is timed by itself: each rank writes its input, a barrier, the call. Its time is from the last
// rank's start to the last rank's end; all ranks read one clock. Rank 0 prints one JSON object per line:
// verb, bytes, memory, median and best time in microseconds. `bytes` are those of the whole vector: what a
// rank has before (reduce_scatter, all_to_all, send, broadcast, all_reduce) or after (all_gather).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bench {

struct Case {
  std::string_view verb;
  std::size_t bytes;
};

inline std::vector<Case> every_case() {
  std::vector<Case> cases = {{"barrier", 0}};
  for (const std::size_t bytes : {8UL, 1UL << 10U, 64UL << 10U, 1UL << 20U, 25UL << 20U, 100UL << 20U})
    cases.push_back({"all_reduce", bytes});
  for (const std::string_view verb : {"reduce_scatter", "broadcast", "all_gather", "all_to_all", "send"})
    cases.push_back({verb, 25UL << 20U});
  return cases;
}

// Those that `words` ask for: nothing, or verbs ("all_gather,broadcast"), or verbs and sizes in bytes.
inline std::vector<Case> cases_of(std::span<char*> words) {
  std::vector<Case> cases = every_case();
  std::erase_if(cases, [&](const Case& which) {
    const auto in_commas = [](std::string_view text) { return std::string(1, ',').append(text).append(","); };
    if (!words.empty() && in_commas(words[0]).find(in_commas(which.verb)) == std::string::npos) return true;
    return words.size() > 1 && std::none_of(words.begin() + 1, words.end(), [&](const char* word) {
             return std::strtoull(word, nullptr, 10) == which.bytes;
           });
  });
  return cases;
}

inline double microseconds_now() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The input's and the output's elements of one rank; all_reduce, broadcast and send work in the input's
// place.
struct Counts {
  std::size_t input = 0;
  std::size_t output = 0;
};

inline Counts counts_of(const Case& which, int size) {
  const std::size_t whole = which.bytes / sizeof(float);
  const std::size_t part = whole / static_cast<std::size_t>(size);
  if (which.verb == "reduce_scatter") return {whole, part};
  if (which.verb == "all_gather") return {part, whole};
  if (which.verb == "all_to_all") return {whole, whole};
  return {whole, 0};
}

// Rank r's input is all r + 1; whether the ends of the result are what they must be.
inline bool is_right(const Case& which, int rank, int size, std::span<const float> input,
                     std::span<const float> output) {
  const auto sum = static_cast<float>(size * (size + 1)) / 2.0F;
  const auto ends = [](std::span<const float> x, float first, float last) {
    return x.empty() || (x.front() == first && x.back() == last);
  };
  if (which.verb == "all_reduce") return ends(input, sum, sum);
  if (which.verb == "reduce_scatter") return ends(output, sum, sum);
  if (which.verb == "all_gather" || which.verb == "all_to_all")
    return ends(output, 1, static_cast<float>(size));
  if (which.verb == "broadcast" || (which.verb == "send" && rank == 1)) return ends(input, 1, 1);
  return true;
}

// The moments at which this rank's calls of one kind began and ended.
struct Moments {
  std::vector<double> starts;
  std::vector<double> ends;
};

// One call. `call` is that of the kind, on this input and output.
template <typename Peer, typename Call>
void time_call(Peer& peer, std::span<float> input, Moments& moments, const Call& call) {
  std::fill(input.begin(), input.end(), static_cast<float>(peer.rank() + 1));
  peer.barrier();
  moments.starts.push_back(microseconds_now());
  call();
  moments.ends.push_back(microseconds_now());
}

inline std::size_t rounds_of(const Case& which) {
  return std::clamp<std::size_t>((256UL << 20U) / std::max<std::size_t>(which.bytes, 1), 20, 2000);
}

inline void require_right(const Case& which, bool is_right) {
  if (is_right) return;
  std::fprintf(stderr, "%s of %zu bytes: wrong result\n", which.verb.data(), which.bytes);
  std::exit(1);
}

template <typename Peer>
void report(Peer& peer, const Case& which, std::string_view memory, Moments moments) {
  peer.maxima(moments.starts);
  peer.maxima(moments.ends);
  std::vector<double> times;
  for (std::size_t i = 0; i < moments.starts.size(); ++i)
    times.push_back(moments.ends[i] - moments.starts[i]);
  std::sort(times.begin(), times.end());
  if (peer.rank() != 0) return;
  std::printf(
      "{\"verb\": \"%s\", \"bytes\": %zu, \"memory\": \"%s\", \"median_us\": %.2f, \"best_us\": %.2f}\n",
      which.verb.data(), which.bytes, memory.data(), times[times.size() / 2], times[0]);
  std::fflush(stdout);
}

// `input` and `output` are large enough for the case.
template <typename Peer>
void time_collective(Peer& peer, const Case& which, std::string_view memory, std::span<float> input,
                     std::span<float> output) {
  const Counts counts = counts_of(which, peer.size());
  input = input.first(counts.input);
  output = output.first(counts.output);
  Moments moments;
  for (std::size_t round = 0; round < rounds_of(which); ++round)
    time_call(peer, input, moments, [&] { peer.call(which, input, output); });
  require_right(which, is_right(which, peer.rank(), peer.size(), input, output));
  report(peer, which, memory, std::move(moments));
}

}  // namespace bench
