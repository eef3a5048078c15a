#include "lockstep/train/metrics_file.h"

#include <cerrno>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
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

MetricsFile::MetricsFile(const std::string& path, std::uint64_t keep) : path_(path) {
  if (path.empty()) return;
  const auto fail = [&] { throw SystemError("metrics: cannot write " + printable(path), errno); };
  file_.reset(std::fopen(path.c_str(), keep == 0 ? "we" : "ae"));
  if (!file_) fail();
  if (std::fseek(file_.get(), 0, SEEK_END) != 0) fail();
  size_ = static_cast<std::uint64_t>(std::ftell(file_.get()));
  if (size_ <= keep) return;
  std::error_code error;
  std::filesystem::resize_file(path, keep, error);
  if (error) throw SystemError("metrics: cannot cut " + printable(path), error.value());
  size_ = keep;
}

void MetricsFile::write(const nlohmann::json& object) {
  if (!file_) return;
  const std::string line = in_words(object).dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  const NoFileSizeSignal quiet;
  if (std::fputs(line.c_str(), file_.get()) < 0 || std::fflush(file_.get()) != 0) {
    throw SystemError("metrics: cannot write " + printable(path_), errno);
  }
  size_ += line.size();
}

}  // namespace lockstep
