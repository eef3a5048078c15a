#include "lockstep/train/metrics_file.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/formats/csv.h"
#include "lockstep/os/append_file.h"
#include "lockstep/os/atomic_file.h"
#include "lockstep/os/folder.h"
#include "lockstep/os/plain_file.h"

namespace lockstep {

class MetricsFile::Lines {
 public:
  virtual ~Lines() = default;
  virtual void write(const nlohmann::json& object) = 0;
  virtual void sync() = 0;
  virtual std::uint64_t size() const = 0;
};

namespace {

using nlohmann::json;

constexpr const char* WHO = "metrics";

// Numbers that JSON cannot express become strings.
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

std::string json_text(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

class JsonLines : public MetricsFile::Lines {
 public:
  JsonLines(const std::string& path, std::uint64_t keep) : file_(path, keep, WHO) {}
  void write(const json& object) override { file_.append(json_text(in_words(object)) + "\n"); }
  void sync() override { file_.sync(); }
  std::uint64_t size() const override { return file_.size(); }

 private:
  AppendFile file_;
};

std::string csv_field(const json& value) {
  const json words = in_words(value);
  if (words.is_null()) return "";
  if (!words.is_string()) return json_text(words);
  return json::parse(json_text(words)).get<std::string>();  // UTF-8 from here on
}

// Counts rows and not their bytes, because a new column changes the bytes.
class CsvTable : public MetricsFile::Lines {
 public:
  CsvTable(const std::string& path, std::uint64_t keep) : path_(path) {
    std::vector<CsvRow> table;
    if (keep > 0 && is_file(path)) table = first_rows(keep);
    if (table.empty()) {
      file_.emplace(path, 0, WHO);
    } else {
      columns_ = table.front();
      rows_ = table.size() - 1;
      rewrite(table);
    }
  }

  void write(const json& object) override {
    if (!object.is_object())
      throw InvalidArgument(lockstep::str("metrics: a row of ", printable(path_),
                                          " is an object of names and values, not ",
                                          printable(json_text(object))));
    const std::size_t before = columns_.size();
    for (const auto& item : object.items()) {
      if (std::find(columns_.begin(), columns_.end(), item.key()) == columns_.end())
        columns_.push_back(item.key());
    }
    if (columns_.size() > before && rows_ == 0) {
      file_.emplace(path_, 0, WHO);
      file_->append(csv_line(columns_));
    } else if (columns_.size() > before) {
      std::vector<CsvRow> table = first_rows(rows_);
      table.front() = columns_;
      rewrite(table);
    }
    CsvRow row;
    for (const std::string& column : columns_)
      row.push_back(object.contains(column) ? csv_field(object.at(column)) : "");
    file_->append(csv_line(row));
    ++rows_;
  }

  void sync() override { file_->sync(); }
  std::uint64_t size() const override { return rows_; }

 private:
  // The names of the columns and the first `rows` rows.
  std::vector<CsvRow> first_rows(std::uint64_t rows) const {
    return parse_csv(read_plain_file(path_), path_, rows + 1);
  }

  // Each row as long as there are columns.
  void rewrite(std::vector<CsvRow>& table) {
    AtomicFile file(path_);
    for (CsvRow& row : table) {
      row.resize(columns_.size());
      const std::string line = csv_line(row);
      file.write(std::as_bytes(std::span(line)));
    }
    file.commit();
    file_.emplace(path_, UINT64_MAX, WHO);
  }

  std::string path_;
  std::optional<AppendFile> file_;
  CsvRow columns_;
  std::uint64_t rows_ = 0;
};

std::unique_ptr<MetricsFile::Lines> lines_in(const std::string& path, std::uint64_t keep) {
  if (path.empty()) return nullptr;
  if (path.ends_with(".csv")) return std::make_unique<CsvTable>(path, keep);
  return std::make_unique<JsonLines>(path, keep);
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path, std::uint64_t keep) : lines_(lines_in(path, keep)) {}
MetricsFile::~MetricsFile() = default;
MetricsFile::MetricsFile(MetricsFile&&) noexcept = default;
MetricsFile& MetricsFile::operator=(MetricsFile&&) noexcept = default;

void MetricsFile::write(const nlohmann::json& object) {
  if (lines_) lines_->write(object);
}

void MetricsFile::sync() {
  if (lines_ != nullptr) lines_->sync();
}

std::uint64_t MetricsFile::size() const { return lines_ ? lines_->size() : 0; }

}  // namespace lockstep
