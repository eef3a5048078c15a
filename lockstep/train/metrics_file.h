// MetricsFile: the measurements of a training job, one line for each call, for programs that read them. If
// the path ends in ".csv", it is a table of comma-separated values. Otherwise each line is a JSON object.
//
//   MetricsFile metrics("run.jsonl");                       // an empty path: nothing is written
//   metrics.write({{"epoch", 1}, {"test_accuracy", 0.987}});
//
// A run that resumes from a checkpoint continues its file. Lines that the earlier run wrote after that
// checkpoint are cut off, because the new run writes them again:
//
//   std::uint64_t written = 0;                              // part of the checkpoint's state
//   state.add_value("metrics", written);
//   load_checkpoint("runs/7", state, {.missing_ok = true});
//   MetricsFile metrics("run.jsonl", written);
//   metrics.write({{"epoch", epoch}});
//   written = metrics.size();
//
// JSON      has no numbers for NaN and infinity, so they are written as the strings "NaN", "Infinity" and
//           "-Infinity", which Python's float() reads.
// CSV       The first line names the columns: the keys of the first object, sorted. A new key in a later call
//           gets a column at the right, and the file is rewritten. A missing key, or null, is an empty field.
//           NaN and infinity are the same words. A list or an object is written as JSON.
// Text      Bytes of a string that are not UTF-8 are replaced.
// Kills     Each line is with the kernel before write() returns, so a killed job leaves whole lines.
// Fails     SystemError that names the file. FormatError: a file to be continued is not CSV. InvalidArgument:
//           a row of a CSV file is not an object.
// Plots     For TensorBoard there is SummaryWriter (summary_writer.h).
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep {

class MetricsFile {
 public:
  // Keeps the first part of an existing file, up to the size() that was `keep`, or all of it if it is
  // shorter. By default keeps nothing.
  explicit MetricsFile(const std::string& path, std::uint64_t keep = 0);
  ~MetricsFile();
  MetricsFile(MetricsFile&&) noexcept;
  MetricsFile& operator=(MetricsFile&&) noexcept;

  void write(const nlohmann::json& object);
  // Present size, for `keep`: bytes of JSON, rows of CSV.
  std::uint64_t size() const;

  class Lines;  // JSON or CSV

 private:
  std::unique_ptr<Lines> lines_;  // null without a path
};

}  // namespace lockstep
