#include "lockstep/train/metrics_file.h"

#include <cerrno>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/os/file_size_limit.h"

namespace lockstep {
namespace {

using nlohmann::json;

// Numbers for which JSON has no words become strings.
json in_words(json value) {
  if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    const auto number = value.get<double>();
    return std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity";
  }
  if (value.is_structured()) {
    for (json& part : value) part = in_words(std::move(part));
  }
  return value;
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path) : path_(path) {
  if (path.empty()) return;
  file_.reset(std::fopen(path.c_str(), "we"));
  if (!file_) throw SystemError("metrics: cannot write " + printable(path), errno);
}

void MetricsFile::write(const nlohmann::json& object) {
  if (!file_) return;
  const std::string line = in_words(object).dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  const NoFileSizeSignal quiet;
  if (std::fputs(line.c_str(), file_.get()) < 0 || std::fflush(file_.get()) != 0) {
    throw SystemError("metrics: cannot write " + printable(path_), errno);
  }
}

}  // namespace lockstep
