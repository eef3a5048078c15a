#include "lockstep/train/metrics_file.h"

#include <cerrno>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {

MetricsFile::MetricsFile(const std::string& path) : path_(path) {
  if (path.empty()) return;
  file_.reset(std::fopen(path.c_str(), "we"));
  if (!file_) throw SystemError("metrics: cannot write " + printable(path), errno);
}

void MetricsFile::write(const nlohmann::json& object) {
  if (!file_) return;
  const std::string line = object.dump() + "\n";
  if (std::fputs(line.c_str(), file_.get()) < 0 || std::fflush(file_.get()) != 0) {
    throw SystemError("metrics: cannot write " + printable(path_), errno);
  }
}

}  // namespace lockstep
