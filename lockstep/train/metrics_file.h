// MetricsFile: what a training job measured, one line for each call, for programs that read it. A path that
// ends in ".csv" has a table of comma-separated values, any other one JSON object per line.
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
// JSON      has no words for NaN and infinity, so they are written as the strings "NaN", "Infinity" and
//           "-Infinity", which Python's float() reads.
// CSV       The first line names the columns: the keys of the first object, sorted. A key that comes later
//           gets a column at the right, and the file is written anew for it. A key that is missing, or null,
//           is an empty field. NaN and infinity are the same words; a list or an object is its JSON.
// Text      What is not UTF-8 in a string is replaced.
// Kills     Each line is with the kernel before write() returns, so a killed job leaves whole lines.
// Fails     SystemError that names the file. A CSV file that is to go on and is none: FormatError. What is no
//           object and should become a row of a CSV file: InvalidArgument.
// Plots     For TensorBoard there is SummaryWriter (summary_writer.h).
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep {

class MetricsFile {
 public:
  // Keeps what a file that is there had when size() was `keep`, all of it if it is shorter; by default
  // nothing.
  explicit MetricsFile(const std::string& path, std::uint64_t keep = 0);
  ~MetricsFile();
  MetricsFile(MetricsFile&&) noexcept;
  MetricsFile& operator=(MetricsFile&&) noexcept;

  void write(const nlohmann::json& object);
  // How far the file is, for `keep`: bytes of JSON, rows of CSV.
  std::uint64_t size() const;

  class Lines;  // JSON or CSV

 private:
  std::unique_ptr<Lines> lines_;  // none without a path
};

}  // namespace lockstep
