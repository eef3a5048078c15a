#include "cli/report/inputs.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/trace/trace_files.h"
#include "lockstep/os/folder.h"
#include "lockstep/os/mapped_file.h"
#include "lockstep/os/plain_file.h"

namespace lockstep::cli {
namespace {

enum class FileKind { OTHER, JSON_LINES, CSV, PROFILE, RECORDER };

// The first bytes of the file.
std::string beginning_of(const std::string& path) {
  constexpr std::size_t LENGTH = 4096;  // our traces name their kind in the first two hundred bytes
  std::string head(LENGTH, '\0');
  head.resize(PlainFile(path).read_at(0, std::as_writable_bytes(std::span(head))));
  return head;
}

FileKind kind_of(const std::string& path) {
  const std::string extension = std::filesystem::path(path).extension().string();
  if (extension == ".csv") return FileKind::CSV;
  if (extension == ".jsonl") return FileKind::JSON_LINES;
  const std::string head = beginning_of(path);
  if (!head.starts_with('{')) return FileKind::OTHER;
  if (head.find(R"("lockstep_trace")") != std::string::npos) return FileKind::RECORDER;
  return head.find(R"("distributedInfo")") != std::string::npos ? FileKind::PROFILE : FileKind::OTHER;
}

void read_into(ReportInputs& inputs, const std::string& path, FileKind kind) {
  if (kind == FileKind::PROFILE) {
    const MappedFile file(path);
    const auto bytes = file.bytes();
    inputs.profiles.push_back(
        parse_profile({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path));
  } else if (kind == FileKind::RECORDER) {
    std::vector<RankTrace> traces = read_trace_file(path);
    inputs.recorder_files.emplace_back(path, traces.size());
    std::move(traces.begin(), traces.end(), std::back_inserter(inputs.recorders));
  } else {
    const std::string text = read_plain_file(path);
    inputs.metrics.push_back(kind == FileKind::CSV ? parse_csv_metrics(text, path)
                                                   : parse_json_lines(text, path));
  }
}

void read_folder(ReportInputs& inputs, const std::string& folder, bool with_folders) {
  for (const std::string& name : names_in(folder)) {
    const std::string path = (std::filesystem::path(folder) / name).string();
    if (name.starts_with('.')) continue;
    if (is_folder(path)) {
      if (with_folders) read_folder(inputs, path, false);
    } else if (is_file(path)) {
      const FileKind kind = kind_of(path);
      if (kind != FileKind::OTHER) read_into(inputs, path, kind);
    }
  }
}

void check_ranks(const std::vector<RankProfile>& profiles) {
  for (std::size_t i = 1; i < profiles.size(); ++i) {
    const RankProfile &one = profiles[i - 1], &other = profiles[i];
    if (one.rank == other.rank)
      throw InvalidArgument(str("two profiler traces of rank ", one.rank, ": ", in_quotes(one.path), " and ",
                                in_quotes(other.path), "; name the files of one of them"));
  }
}

// Makes paths relative to the one folder that the report is about.
void shorten_paths(ReportInputs& inputs, const std::string& folder) {
  const auto shorten = [&](std::string& path) {
    path = std::filesystem::path(path).lexically_relative(folder).string();
  };
  for (MetricsTable& table : inputs.metrics) shorten(table.path);
  for (RankProfile& profile : inputs.profiles) shorten(profile.path);
  for (auto& file : inputs.recorder_files) shorten(file.first);
}

}  // namespace

ReportInputs read_inputs(const std::vector<std::string>& paths) {
  ReportInputs inputs;
  if (!paths.empty()) inputs.title = paths.front();
  if (inputs.title == ".") inputs.title = std::filesystem::current_path().string();
  for (const std::string& path : paths) {
    if (is_folder(path)) {
      read_folder(inputs, path, true);
    } else {
      const FileKind kind = kind_of(path);
      read_into(inputs, path, kind == FileKind::OTHER ? FileKind::JSON_LINES : kind);
    }
  }
  std::stable_sort(inputs.profiles.begin(), inputs.profiles.end(),
                   [](const RankProfile& a, const RankProfile& b) { return a.rank < b.rank; });
  check_ranks(inputs.profiles);
  if (paths.size() == 1 && is_folder(paths[0])) shorten_paths(inputs, paths[0]);
  return inputs;
}

}  // namespace lockstep::cli
