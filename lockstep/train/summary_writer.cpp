#include "lockstep/train/summary_writer.h"

#include <chrono>

#include "lockstep/base/str.h"
#include "lockstep/formats/tensorboard_events.h"
#include "lockstep/os/folder.h"
#include "lockstep/os/plain_file.h"

namespace lockstep {
namespace {

// TensorBoard looks for "tfevents" in a name. Python writes the time and the host behind it.
constexpr const char* EVENTS_FILE_NAME = "events.out.tfevents.0.lockstep";

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

SummaryWriter::SummaryWriter(const std::string& log_dir, std::uint64_t keep) {
  if (log_dir.empty()) return;
  make_folders(log_dir);
  const std::string path = lockstep::str(log_dir, '/', EVENTS_FILE_NAME);
  if (keep > 0) keep = is_file(path) ? whole_tf_records(read_plain_file(path), keep) : 0;
  file_.emplace(path, keep, "SummaryWriter");
  if (keep == 0) put(file_version_event(seconds_since_1970()));
}

void SummaryWriter::put(std::string_view event) { file_->append(tf_record(event)); }

void SummaryWriter::add_scalar(std::string_view tag, double value, std::int64_t step) {
  if (file_) put(scalar_event(tag, static_cast<float>(value), step, seconds_since_1970()));
}

void SummaryWriter::add_text(std::string_view tag, std::string_view text, std::int64_t step) {
  if (file_) put(text_event(lockstep::str(tag, "/text_summary"), text, step, seconds_since_1970()));
}

void SummaryWriter::flush() {
  if (file_) file_->sync();
}

}  // namespace lockstep
