#include "lockstep/formats/checkpoint_folder.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/formats/checksum.h"
#include "lockstep/os/folder.h"
#include "lockstep/os/plain_file.h"

namespace lockstep {
namespace {

constexpr std::string_view PREFIX = "step-";
constexpr std::string_view UNFINISHED = ".unfinished";
constexpr std::string_view REPLACED = ".replaced";
constexpr std::size_t STEP_DIGITS = 12;
constexpr std::size_t PORTION = std::size_t{1} << 20U;  // of a file; its checksum is made portion by portion

// "step-000000001200", between a prefix and a suffix: 1200.
std::optional<std::int64_t> step_of(std::string_view name, std::string_view before, std::string_view after) {
  if (!name.starts_with(str(before, PREFIX)) || !name.ends_with(after)) return std::nullopt;
  name.remove_prefix(before.size() + PREFIX.size());
  name.remove_suffix(std::min(after.size(), name.size()));
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  const bool is_number =
      error == std::errc() && end == name.data() + name.size() && name.size() >= STEP_DIGITS;
  return is_number && step >= 0 ? std::optional(step) : std::nullopt;
}

std::vector<std::string> names_if_there(const std::string& folder) {
  return is_folder(folder) ? names_in(folder) : std::vector<std::string>();
}

std::string piece_checksum(const PlainFile& file, std::uint64_t begin, std::uint64_t bytes, bool& is_short) {
  std::vector<std::byte> portion(std::min<std::uint64_t>(PORTION, bytes));
  Checksum checksum;
  for (std::uint64_t done = 0; done < bytes;) {
    const std::span<std::byte> part(portion.data(), std::min<std::uint64_t>(portion.size(), bytes - done));
    is_short |= file.read_at(begin + done, part) < part.size();
    checksum.add(part);
    done += part.size();
  }
  return checksum.text();
}

// The files. Each is opened when its first piece is read.
class Files {
 public:
  Files(const std::string& checkpoint, const CheckpointIndex& index) : folder_(checkpoint), index_(index) {}

  void check_sizes(std::vector<CheckpointDamage>& damage) {
    for (const CheckpointFile& file : index_.files) {
      files_.push_back(nullptr);
      try {
        auto opened = std::make_unique<PlainFile>(str(folder_, '/', file.name));
        const std::uint64_t size = opened->size();
        if (size == file.bytes) {
          files_.back() = std::move(opened);
        } else {
          damage.push_back({file.name, "", str("it has ", size, " bytes, and the index says ", file.bytes)});
        }
      } catch (const SystemError& error) {
        damage.push_back({file.name, "", error.what()});
      }
    }
  }

  // Finds damage that no piece shows.
  void check_headers(std::vector<CheckpointDamage>& damage) const {
    for (std::size_t i = 0; i < index_.files.size(); ++i) {
      const CheckpointFile& file = index_.files[i];
      bool is_short = false;
      if (files_[i] && piece_checksum(*files_[i], 0, file.header_bytes, is_short) != file.header_xxh128)
        damage.push_back({file.name, "", "its header is not the one that was written"});
    }
  }

  void check_piece(const std::string& name, const CheckpointTensor& tensor, const CheckpointPiece& piece,
                   std::vector<CheckpointDamage>& damage) const {
    if (!files_[piece.file]) return;  // the missing file is in the list already
    bool is_short = false;
    const std::string found =
        piece_checksum(*files_[piece.file], piece.begin, bytes_of(piece, tensor), is_short);
    if (is_short || found != piece.xxh128)
      damage.push_back({index_.files[piece.file].name, name,
                        is_short ? "the file ends inside it" : "its bytes are not those that were written"});
  }

 private:
  const std::string& folder_;
  const CheckpointIndex& index_;
  std::vector<std::unique_ptr<PlainFile>> files_;
};

}  // namespace

std::string checkpoint_name(std::int64_t step) {
  std::string digits = std::to_string(step);
  if (digits.size() < STEP_DIGITS) digits.insert(0, STEP_DIGITS - digits.size(), '0');
  return str(PREFIX, digits);
}
std::string unfinished_name(std::int64_t step) { return str('.', checkpoint_name(step), UNFINISHED); }
std::string replaced_name(std::int64_t step) { return str('.', checkpoint_name(step), REPLACED); }

std::vector<CheckpointEntry> list_checkpoints(const std::string& folder) {
  std::vector<CheckpointEntry> entries;
  std::set<std::int64_t> steps;
  const std::vector<std::string> names = names_if_there(folder);
  for (const std::string& name : names)
    if (const auto step = step_of(name, "", ""); step && steps.insert(*step).second)
      entries.push_back({*step, str(folder, '/', name)});
  for (const std::string& name : names)
    if (const auto step = step_of(name, ".", REPLACED); step && steps.insert(*step).second)
      entries.push_back({*step, str(folder, '/', name)});
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  return entries;
}

std::optional<CheckpointEntry> latest_checkpoint(const std::string& folder) {
  const auto entries = list_checkpoints(folder);
  return entries.empty() ? std::nullopt : std::optional(entries.back());
}

std::vector<std::string> abandoned_in(const std::string& folder) {
  const std::vector<std::string> names = names_if_there(folder);
  std::vector<std::string> paths;
  for (const std::string& name : names) {
    const auto replaced = step_of(name, ".", REPLACED);
    const bool is_superseded =
        replaced && std::binary_search(names.begin(), names.end(), checkpoint_name(*replaced));
    if (step_of(name, ".", UNFINISHED) || is_superseded) paths.push_back(str(folder, '/', name));
  }
  return paths;
}

std::vector<std::int64_t> steps_to_remove(std::vector<std::int64_t> steps, const Retention& retention) {
  if ((retention.keep_last && *retention.keep_last < 1) ||
      (retention.keep_every && *retention.keep_every < 1))
    throw InvalidArgument(str("checkpoints: keep_last is ", retention.keep_last.value_or(1),
                              " and keep_every ", retention.keep_every.value_or(1),
                              "; both must be at least 1"));
  if (!retention.keep_last) return {};
  std::sort(steps.begin(), steps.end());
  std::vector<std::int64_t> removed;
  const auto last = static_cast<std::size_t>(*retention.keep_last);
  for (std::size_t i = 0; i + last < steps.size(); ++i) {
    const bool is_kept = (retention.keep_every && steps[i] % *retention.keep_every == 0) ||
                         std::find(retention.keep_steps.begin(), retention.keep_steps.end(), steps[i]) !=
                             retention.keep_steps.end();
    if (!is_kept) removed.push_back(steps[i]);
  }
  return removed;
}

CheckpointIndex read_checkpoint_index(const std::string& checkpoint) {
  const std::string path = str(checkpoint, '/', CHECKPOINT_INDEX_NAME);
  const std::string text = read_plain_file(path);
  try {
    return parse_checkpoint_index(text);
  } catch (const FormatError& defect) {
    throw FormatError(str("checkpoint index ", in_quotes(path), ": ", defect.what()));
  }
}

std::vector<CheckpointDamage> find_damage(const std::string& checkpoint, const CheckpointIndex& index,
                                          const std::function<bool(std::size_t)>& selects) {
  std::vector<CheckpointDamage> damage;
  Files files(checkpoint, index);
  files.check_sizes(damage);
  if (selects(0)) files.check_headers(damage);
  std::size_t number = 0;
  for (const auto& [name, tensor] : index.tensors)
    for (const CheckpointPiece& piece : tensor.pieces)
      if (selects(number++)) files.check_piece(name, tensor, piece, damage);
  return damage;
}

void remove_checkpoint(const CheckpointEntry& entry) {
  const std::size_t slash = entry.path.rfind('/');
  const std::string away = str(entry.path.substr(0, slash + 1), unfinished_name(entry.step));
  if (entry.path != away) rename_path(entry.path, away);
  remove_flat_folder(away);
}

}  // namespace lockstep
