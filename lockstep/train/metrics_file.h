// MetricsFile: one JSON object per line, for programs that read what a training job measured.
//
//   MetricsFile metrics("run.jsonl");                       // an empty path: nothing is written
//   metrics.write({{"epoch", 1}, {"test_accuracy", 0.987}});
//
// A run that goes on from a checkpoint goes on with its file. What the run that was stopped wrote after that
// checkpoint is cut off, because the lines come again:
//
//   std::uint64_t written = 0;                              // part of the checkpoint's state
//   state.add_value("metrics", written);
//   load_checkpoint("runs/7", state, {.missing_ok = true});
//   MetricsFile metrics("run.jsonl", written);
//   metrics.write({{"epoch", epoch}});
//   written = metrics.size();
//
// JSON has no words for NaN and infinity, so they are written as the strings "NaN", "Infinity" and
// "-Infinity", which Python's float() reads. What is not UTF-8 in a string is replaced. Each line is on
// disk's way before write() returns, so a killed job leaves whole lines. Throws SystemError naming the file.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep {

class MetricsFile {
 public:
  // Keeps the first `keep` bytes of a file that is there, all of it if it is shorter; by default none.
  explicit MetricsFile(const std::string& path, std::uint64_t keep = 0);

  void write(const nlohmann::json& object);
  std::uint64_t size() const { return size_; }  // bytes, so far

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::uint64_t size_ = 0;
};

}  // namespace lockstep
