// How a rank of a RANKS_TEST tells the watching process what failed: records over an inherited pipe.
//
//   the rank                                    the watcher
//   ReportWriter writer(fd);                    ReportReader reader;
//   writer.write({FAILURE, 2, file, 12, "…"})   for (const Report& report : reader.add(bytes)) …
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::harness {

enum class ReportKind : std::uint32_t {
  FAILURE,  // an expectation failed, or the body threw
  SKIPPED,  // the body called GTEST_SKIP
  FINISHED  // the body has run; the last record of a rank that lived
};

struct Report {
  ReportKind kind = ReportKind::FAILURE;
  std::int32_t rank = 0;
  std::string file;
  std::int32_t line = 0;
  std::string message;
};

class ReportWriter {
 public:
  explicit ReportWriter(int fd) : fd_(fd) {}
  // Threads: any. After 20 failures of one process the rest is counted only; FINISHED says how many.
  void write(const Report& report);

 private:
  int fd_;
  std::mutex mutex_;
  int failures_ = 0;  // guarded by mutex_
};

class ReportReader {
 public:
  // The records that are complete now.
  std::vector<Report> add(std::string_view bytes);

 private:
  std::optional<Report> next();
  std::string pending_;
};

}  // namespace lockstep::harness
