#include "testing/ranks_report.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace lockstep::harness {
namespace {

constexpr int MAX_FAILURES = 20;

struct Header {
  ReportKind kind;
  std::int32_t rank;
  std::int32_t line;
  std::uint32_t file_size;
  std::uint32_t message_size;
};

void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) return;  // the watcher is gone, and with it whoever wanted to know
    if (written > 0) bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace

void ReportWriter::write(const Report& report) {
  const std::lock_guard lock(mutex_);
  std::string message = report.message;
  if (report.kind == ReportKind::FAILURE && ++failures_ > MAX_FAILURES) return;
  if (report.kind == ReportKind::FINISHED && failures_ > MAX_FAILURES) {
    message = std::to_string(failures_ - MAX_FAILURES) + " more failures are not shown";
  }
  const Header header = {report.kind, report.rank, report.line,
                         static_cast<std::uint32_t>(report.file.size()),
                         static_cast<std::uint32_t>(message.size())};
  std::string bytes(sizeof header, '\0');
  std::memcpy(bytes.data(), &header, sizeof header);
  write_all(fd_, bytes + report.file + message);
}

std::vector<Report> ReportReader::add(std::string_view bytes) {
  pending_ += bytes;
  std::vector<Report> reports;
  while (auto report = next()) reports.push_back(*std::move(report));
  return reports;
}

std::optional<Report> ReportReader::next() {
  Header header;
  if (pending_.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, pending_.data(), sizeof header);
  const std::size_t total = sizeof header + header.file_size + header.message_size;
  if (pending_.size() < total) return std::nullopt;
  Report report = {header.kind, header.rank, pending_.substr(sizeof header, header.file_size), header.line,
                   pending_.substr(sizeof header + header.file_size, header.message_size)};
  pending_.erase(0, total);
  return report;
}

}  // namespace lockstep::harness
