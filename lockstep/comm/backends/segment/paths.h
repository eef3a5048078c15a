// Chooses the path of an all_reduce through shared memory, by its number of bytes. The verbs of
// shared/exchange.h use the table, too: `window` means a window, every other name means blocks.
//
//   const PathTable table = path_table();         // what ships, or what LOCKSTEP_PATHS says
//   table.path_of(4096);                          // Path::ONE_SHOT
//   describe(table);                              // "inline:72,one_shot:32768,two_shot:524288,window"
//
// The table is for the caller's private memory. A tensor in the group's memory (allocate_shared) is reduced
// in place, unless it fits into a post line. All paths give the same bits. The group's rank 0 decides for all
// its ranks.
//
// LOCKSTEP_PATHS="one_shot:16K,window" names paths, each with its largest size; the last has no limit. A
// single name forces that path for every size (inline: for every size that fits). `lockstep bench --tune`
// finds the best table of a machine.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::shared {

enum class Path : std::uint8_t {
  INLINE,    // in the post line: one cache line there, one back
  ONE_SHOT,  // copied into a block; every rank combines all blocks: one synchronisation
  TWO_SHOT,  // through the window in one chunk: every rank combines a portion, two synchronisations
  WINDOW,    // the same in many chunks, so that what is copied stays in the cache
  // copied into a block whose slices any rank may reduce. Asynchronous operations use it instead of the last
  // two paths.
  STAGED,
};
inline constexpr int PATH_COUNT = 5;
std::string_view name_of(Path path);

struct PathTable {
  static constexpr std::size_t NO_LIMIT = ~std::size_t{0};
  struct Entry {
    Path path = Path::STAGED;
    std::uint64_t up_to = NO_LIMIT;  // bytes
  };
  std::array<Entry, PATH_COUNT> entries;  // ascending; entries behind the first without a limit mean nothing

  Path path_of(std::size_t bytes) const;
};

// Throws InvalidArgument, with the text, when it is none.
PathTable parse_paths(const std::string& text);
std::string describe(const PathTable& table);

inline constexpr const char* SHIPPED_PATHS = "inline:72,one_shot:16K,two_shot:1M,window";

PathTable path_table();

}  // namespace lockstep::shared
