// MetricsFile: one JSON object per line, for programs that read what a training job measured.
//
//   MetricsFile metrics("run.jsonl");                       // an empty path: nothing is written
//   metrics.write({{"epoch", 1}, {"test_accuracy", 0.987}});
//
// JSON has no words for NaN and infinity, so they are written as the strings "NaN", "Infinity" and
// "-Infinity", which Python's float() reads. What is not UTF-8 in a string is replaced. Each line is on
// disk's way before write() returns, so a killed job leaves whole lines. Throws SystemError naming the file.
#pragma once

#include <cstdio>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep {

class MetricsFile {
 public:
  explicit MetricsFile(const std::string& path);

  void write(const nlohmann::json& object);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace lockstep
