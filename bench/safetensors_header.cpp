// Milliseconds to open a safetensors file of many tensors and to read their names, shapes and places.
//
//   build/bench/safetensors_header /tmp/many.safetensors 200000 9      # writes it, opens it 9 times
//   python bench/peers/safetensors_header.py /tmp/many.safetensors 9   # safetensors' own library
//
// Prints one JSON object: tensors, median and best time.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "lockstep/formats/safetensors.h"

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: safetensors_header FILE TENSORS ROUNDS\n");
    return 64;
  }
  const std::size_t count = std::strtoull(argv[2], nullptr, 10);
  const std::vector<std::byte> value(sizeof(float));
  std::vector<lockstep::SafetensorsSource> entries;
  for (std::size_t i = 0; i < count; ++i)
    entries.push_back({"model.layers." + std::to_string(i) + ".weight", "F32", {1}, value});
  lockstep::write_safetensors(argv[1], entries);
  std::vector<double> times;
  for (int round = 0; round < std::atoi(argv[3]); ++round) {
    const auto begin = std::chrono::steady_clock::now();
    const lockstep::SafetensorsFile file(argv[1]);
    const std::chrono::duration<double, std::milli> span = std::chrono::steady_clock::now() - begin;
    if (file.tensors().size() != count) return 1;
    times.push_back(span.count());
  }
  std::sort(times.begin(), times.end());
  std::printf("{\"tensors\": %zu, \"median_ms\": %.1f, \"best_ms\": %.1f}\n", count, times[times.size() / 2],
              times[0]);
}
