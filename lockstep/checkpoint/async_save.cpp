#include "lockstep/checkpoint/async_save.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <utility>

#include "lockstep/base/log.h"
#include "lockstep/base/round_up.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/write_checkpoint.h"
#include "lockstep/os/background_thread.h"
#include "lockstep/os/signal_mask.h"

namespace lockstep {
namespace {

constexpr std::size_t ALIGNMENT = 64;  // of each piece in the memory: more than any dtype needs

std::size_t room_for(const PieceToWrite& piece) {
  return round_up(static_cast<std::size_t>(piece.piece.bytes), ALIGNMENT);
}

}  // namespace

AsyncSave& AsyncSave::of_this_process() {
  static auto* const instance =
      new AsyncSave;  // the thread is joined when the job is left, not by a destructor
  return *instance;
}

bool AsyncSave::is_writing() const {
  const std::lock_guard lock(mutex_);
  return stage_ == Stage::WRITING;
}

void AsyncSave::take() {
  pace_.hurry();
  if (thread_.joinable()) thread_.join();
  const std::lock_guard lock(mutex_);
  stage_ = Stage::IDLE;
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void AsyncSave::begin(CheckpointRanks ranks, PreparedSave save) {
  {
    const std::lock_guard lock(mutex_);
    stage_ = Stage::WRITING;
  }
  pace_.begin();
  const AllSignalsBlocked quiet;
  thread_ = std::thread([this, ranks = std::move(ranks), save = std::move(save)] {
    become_background_thread("checkpoint");
    write(ranks, save);
  });
}

void AsyncSave::copy(PreparedSave& save) {
  const at::NoGradGuard no_grad;
  std::size_t bytes = 0;
  for (const PieceToWrite& piece : save.pieces) bytes += room_for(piece);
  if (!memory_.defined() || memory_.nbytes() < bytes)
    memory_ = at::empty({static_cast<std::int64_t>(bytes)}, at::TensorOptions(at::kByte));
  std::size_t begin = 0;
  for (PieceToWrite& piece : save.pieces) {
    const at::Tensor copy =
        memory_.narrow(0, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(piece.piece.bytes))
            .view(piece.tensor.scalar_type())
            .view(piece.tensor.sizes());
    copy.copy_(piece.tensor);
    piece.tensor = copy;
    begin += room_for(piece);
  }
}

void AsyncSave::write(const CheckpointRanks& ranks, const PreparedSave& save) noexcept {
  std::exception_ptr failure;
  try {
    write_checkpoint(ranks, save, &pace_);
  } catch (const std::exception& error) {
    log(LogLevel::WARNING, str("a checkpoint could not be written: ", error.what()));
    failure = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  failure_ = failure;
  stage_ = failure ? Stage::FAILED : Stage::DONE;
}

}  // namespace lockstep
