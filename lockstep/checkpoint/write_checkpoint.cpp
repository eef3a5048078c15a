#include "lockstep/checkpoint/write_checkpoint.h"

#include <ATen/core/grad_mode.h>

#include <chrono>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/shard_file.h"
#include "lockstep/formats/checkpoint_folder.h"
#include "lockstep/os/folder.h"
#include "lockstep/os/folder_lock.h"
#include "lockstep/os/new_file.h"

namespace lockstep {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

// a job that was just killed may hold it for a moment
constexpr std::chrono::milliseconds LOCK_PATIENCE = 30s;

json to_json(const WrittenShard& shard, const PreparedSave& save) {
  json pieces = json::array();
  for (std::size_t i = 0; i < shard.pieces.size(); ++i) {
    const CheckpointPiece& piece = shard.pieces[i];
    pieces.push_back(
        {save.pieces[i].piece.tensor, piece.key, piece.begin, piece.offsets, piece.sizes, piece.xxh128});
  }
  return {{"name", shard.file.name},
          {"bytes", shard.file.bytes},
          {"header_bytes", shard.file.header_bytes},
          {"header_xxh128", shard.file.header_xxh128},
          {"pieces", pieces}};
}

// Rank 0's part: makes the folder without its name, and later gives it the name.
class Commit {
 public:
  explicit Commit(const PreparedSave& save)
      : save_(save),
        unfinished_(str(save.folder, '/', unfinished_name(save.options.step))),
        final_(str(save.folder, '/', checkpoint_name(save.options.step))) {}

  const std::string& unfinished() const { return unfinished_; }
  const std::string& final_path() const { return final_; }

  void begin() {
    make_folders(save_.folder);
    lock_.emplace(str(save_.folder, "/.lock"), LOCK_PATIENCE);
    for (const CheckpointEntry& entry : list_checkpoints(save_.folder)) {
      const std::string path = str(save_.folder, '/', checkpoint_name(entry.step));
      if (entry.path != path) rename_path(entry.path, path);  // its writer died before there was a successor
    }
    const auto abandoned = abandoned_in(save_.folder);
    // A dead writer may have given a checkpoint its name without syncing it. After a power failure, only the
    // checkpoint that it replaced would be left.
    if (save_.options.durable && !abandoned.empty()) sync_folder(save_.folder);
    for (const std::string& path : abandoned) {
      log(LogLevel::WARNING, str("checkpoints: removing ", in_quotes(path), ", which was not completed"));
      remove_flat_folder(path);
    }
    make_folder(unfinished_);
  }

  void finish(CheckpointIndex index, const std::vector<json>& shards) {
    fill_in(index, shards);
    const std::string text = to_text(index);
    NewFile file(str(unfinished_, '/', CHECKPOINT_INDEX_NAME));
    file.write(std::as_bytes(std::span(text)));
    if (save_.options.durable) file.sync();
    if (save_.options.durable) sync_folder(unfinished_);
    fail_point("checkpoint.before_rename");
    give_name();
    fail_point("checkpoint.after_rename");
    if (save_.options.durable) sync_folder(save_.folder);
    remove_old();
  }

  void drop() noexcept {
    try {
      remove_flat_folder(unfinished_);
    } catch (const Error& error) {
      log(LogLevel::WARNING, str("checkpoints: ", error.what()));
    }
  }

 private:
  void fill_in(CheckpointIndex& index, const std::vector<json>& shards) const {
    for (const json& shard : shards) {
      for (const json& piece : shard.at("pieces")) {
        index.tensors.at(piece.at(0).get<std::string>())
            .pieces.push_back({.file = index.files.size(),
                               .key = piece.at(1),
                               .begin = piece.at(2),
                               .offsets = piece.at(3),
                               .sizes = piece.at(4),
                               .xxh128 = piece.at(5)});
      }
      index.files.push_back(
          {shard.at("name"), shard.at("bytes"), shard.at("header_bytes"), shard.at("header_xxh128")});
    }
    for (const auto& [name, written] : save_.aliases) index.tensors[name] = index.tensors.at(written);
  }

  // The one step that makes the new state valid in place of the old one.
  void give_name() {
    if (!is_folder(final_)) return rename_path(unfinished_, final_);
    if (!exchange_paths(unfinished_, final_)) {
      const std::string replaced = str(save_.folder, '/', replaced_name(save_.options.step));
      rename_path(final_, replaced);
      rename_path(unfinished_, final_);
      return remove_replaced(replaced);
    }
    remove_replaced(unfinished_);
  }

  // The replaced checkpoint is removed once the name of its successor is on the disk.
  void remove_replaced(const std::string& replaced) {
    if (save_.options.durable) sync_folder(save_.folder);
    try {
      remove_flat_folder(replaced);
    } catch (const Error& error) {
      log(LogLevel::WARNING, str("checkpoints: ", error.what()));
    }
  }

  void remove_old() noexcept {
    try {
      const auto entries = list_checkpoints(save_.folder);
      std::vector<std::int64_t> steps;
      for (const CheckpointEntry& entry : entries)
        if (entry.step != save_.options.step) steps.push_back(entry.step);
      steps.push_back(save_.options.step);
      const SaveCheckpointOptions& options = save_.options;
      for (const std::int64_t step :
           steps_to_remove(steps, {options.keep_last, options.keep_every, options.keep_steps}))
        for (const CheckpointEntry& entry : entries)
          if (entry.step == step && step != options.step) remove_checkpoint(entry);
    } catch (const Error& error) {
      log(LogLevel::WARNING, str("checkpoints: an old one could not be removed: ", error.what()));
    }
  }

  const PreparedSave& save_;
  const std::string unfinished_;
  const std::string final_;
  std::optional<FolderLock> lock_;
};

}  // namespace

std::string write_checkpoint(const CheckpointRanks& ranks, const PreparedSave& save, Pace* pace) {
  const at::NoGradGuard no_grad;
  Commit commit(save);
  ranks.on_rank_0([&] {
    commit.begin();
    return json();
  });
  try {
    const std::vector<json> shards = ranks.all_try([&] {
      if (!is_folder(commit.unfinished()))
        throw InvalidArgument(str("this rank does not see ", in_quotes(commit.unfinished()),
                                  ", which rank 0 has made; all ranks need the same folder, on a file system "
                                  "that their machines share"));
      fail_point("checkpoint.before_shard");
      return to_json(write_shard(commit.unfinished(), shard_name(ranks.rank(), ranks.size()), save.pieces,
                                 save.options.durable, pace),
                     save);
    });
    ranks.on_rank_0([&] {
      commit.finish(save.index, shards);
      return json();
    });
  } catch (...) {
    if (ranks.rank() == 0) commit.drop();
    throw;
  }
  return commit.final_path();
}

}  // namespace lockstep
