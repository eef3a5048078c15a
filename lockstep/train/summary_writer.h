// SummaryWriter: curves and texts for TensorBoard. The counterpart of torch.utils.tensorboard.SummaryWriter.
//
//   SummaryWriter writer(rank == 0 ? "runs/7" : "");        // an empty folder: nothing is written
//   writer.add_scalar("train/loss", 0.25, 100);             // tag, value, step
//   writer.add_text("options", "`--lr 0.1`", 0);            // Markdown
//
// Then run `tensorboard --logdir runs`. A run that resumes from a checkpoint continues its file. Events that
// the earlier run wrote after that checkpoint are cut off, because the new run writes them again:
//
//   std::uint64_t written = 0;                              // part of the checkpoint's state
//   state.add_value("summary", written);
//   load_checkpoint("runs/7", state, {.missing_ok = true});
//   SummaryWriter writer("runs/7", written);
//   writer.add_scalar("train/loss", 0.25, 100);
//   written = writer.size();
//
// File      LOG_DIR/events.out.tfevents.0.lockstep, one for each folder. A missing folder is made. The name
//           is always the same, so that a run that resumes finds it. Without `keep` an earlier run's file is
//           replaced.
// Values    are float32, as Python writes them. NaN and infinity are kept.
// Kills     Each event is with the kernel before add_scalar() returns; flush() waits for the disk. If a power
//           failure has damaged the file, the whole records before the damage are kept.
// Cost      a system call for each event.
// Ranks     One rank writes, usually rank 0. Nothing is communicated.
// Threads   one at a time.
// Watching  A TensorBoard that has read events which are then cut off must be started again.
// Fails     SystemError that names the folder or the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/os/append_file.h"

namespace lockstep {

class SummaryWriter {
 public:
  // Keeps the first `keep` bytes of the folder's file; by default none.
  explicit SummaryWriter(const std::string& log_dir, std::uint64_t keep = 0);

  void add_scalar(std::string_view tag, double value, std::int64_t step);
  void add_text(std::string_view tag, std::string_view text, std::int64_t step);
  void flush();  // returns when all events are on the disk

  std::uint64_t size() const { return file_ ? file_->size() : 0; }  // in bytes

 private:
  void put(std::string_view event);

  std::optional<AppendFile> file_;  // none without a folder
};

}  // namespace lockstep
